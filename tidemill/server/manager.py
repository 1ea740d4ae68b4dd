"""The server: keeps the contract of `service.py` over the two processes and the files of the changefeeds.

Read `changefeeds` first: its objects keep the changefeeds and do what the API asks for. Here they are put together, and here is the
server's own: begin and end of a term, its processes, its log, the cluster.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tidemill import logs
from tidemill.changelog.reader import existing_log, log_exists
from tidemill.errors import ClusterMismatch, ConfigError, redact
from tidemill.metrics.samples import Sample, build_info, start_time
from tidemill.metrics.ticdc import with_ticdc_names
from tidemill.server import errors as e
from tidemill.server import service as s
from tidemill.server.changefeeds.capture_control import CaptureControl
from tidemill.server.changefeeds.feed_store import FeedStore
from tidemill.server.changefeeds.hosting import Hosting
from tidemill.server.changefeeds.log_claims import LogClaims
from tidemill.server.changefeeds.operations import Operations
from tidemill.server.changefeeds.questions import Questions
from tidemill.server.changefeeds.tables import Tables
from tidemill.server.changefeeds.upkeep import Upkeep
from tidemill.server.feeds import FeedFiles, time_of
from tidemill.server.host.messages import Figures
from tidemill.server.options import ServerOptions, own_id, own_version
from tidemill.server.processes import MakeProcesses
from tidemill.server.shared.elector import DRAINED_S, Elector
from tidemill.server.status import feed_samples, process_samples
from tidemill.server.this_server import ALIVE, DRAINING, STOPPING, ThisServer
from tidemill.server.upstream import Upstream

log = logging.getLogger(__name__)


WRITES_S = 3.0
"""How long states are written at the end, at most."""


class Manager:
    """A `ChangefeedService`, and the `Office` of the server that leads.

    It holds the objects that keep the changefeeds, and does itself what is about the server. A request about changefeeds goes to the
    object that does it: such methods of the service are those of that object.
    """

    def __init__(
        self, options: ServerOptions, upstream: Upstream, processes: MakeProcesses, stand_by: Callable[[], None] = lambda: None
    ) -> None:
        """`stand_by`: lets processes wait for the day when this server leads."""
        self._options, self._upstream = options, upstream
        self._make_processes, self._stand_by = processes, stand_by
        self._elector: Elector | None = None
        self._upkeep_task: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()  # of two changes between leading and following
        self._server = server = ThisServer()
        self.feeds = feeds = FeedStore(FeedFiles(options.data_dir, options.log))
        self.capture = capture = CaptureControl(options, server, feeds)
        self._hosting = hosting = Hosting(server, feeds)
        tables = Tables(options.log, upstream)
        claims = LogClaims(options.log, feeds, capture, tables)
        self.upkeep = Upkeep(options.gc_ttl, feeds, hosting, capture, claims)
        self._questions = questions = Questions(options, upstream, server, feeds, capture, tables)
        operations = Operations(options, upstream, server, feeds, hosting, capture, tables, claims, questions)

        # ---- methods of the service that others do: changes of changefeeds, questions about them, capture and cluster
        self.create, self.update, self.remove = operations.create, operations.update, operations.remove
        self.pause, self.resume = operations.pause, operations.resume
        self.changefeeds, self.changefeed = questions.changefeeds, questions.changefeed
        self.statistics, self.synced = questions.statistics, questions.synced
        self.tables, self.table_lists, self.dispatcher_count = questions.tables, questions.table_lists, questions.dispatcher_count
        self.move_table, self.move_split_table = questions.move_table, questions.move_split_table
        self.split_table, self.merge_table = questions.split_table, questions.merge_table
        self.capture_status = capture.status
        self.tso, self.resolve_lock = upstream.tso, upstream.resolve_lock

    async def start(self) -> None:
        """Look at the cluster, the log and what servers share. Raises what makes a start useless."""
        self._server.id = await asyncio.to_thread(own_id, self._options.data_dir)
        self._server.cluster_id = str((await self._upstream.connect()).cluster_id)
        await asyncio.to_thread(self.feeds.files.check)
        await asyncio.to_thread(self._check_log)

    def elects(self, elector: Elector) -> None:
        """It may lead when this one says so."""
        self._elector, self.feeds.deposed = elector, elector.failed

    @property
    def id(self) -> str:
        return self._server.id

    # ---- an `Office`

    def follow(self) -> None:
        """Another server leads: have the processes ready."""
        self._stand_by()

    async def lead(self, term: int) -> None:
        """Take the changefeeds over, and start the processes. `term`: of the lease. Raises TidemillError."""
        async with self._changing:
            server = self._server
            server.term, feeds = await asyncio.to_thread(self.feeds.files.take, term, server.id)
            self.feeds.load(feeds)
            self._check_feeds()
            server.processes = self._make_processes(lambda: self._hosting.batches, server.term)
            self._hosting.start()
            if await asyncio.to_thread(log_exists, self._options.log):
                await self.capture.start(None)
            elif self.feeds.present:
                await self.capture.start(min(feed.checkpoint_ts for feed in self.feeds.present.values()))
            else:
                log.info("the log %s begins where the first changefeed does", redact(self._options.log))
            self._upkeep_task = asyncio.create_task(self.upkeep.run())
            log.info("the server leads in term %d; it has %d changefeeds", server.term, len(self.feeds.present))

    async def leave(self, *, at_once: bool) -> None:
        """Stop the processes. `at_once`: another server leads; else each changefeed ends its batch."""
        async with self._changing:
            server = self._server
            ends, server.liveness = server.liveness == STOPPING, STOPPING
            if self._upkeep_task is not None:
                self._upkeep_task.cancel()
            self._hosting.cancel_retries()
            if server.processes is not None:
                await (server.processes.kill() if at_once else server.processes.stop())
            if not at_once:
                await self.feeds.flush()
                await self.feeds.finish_writes(WRITES_S)
            await self.feeds.abandon_writes()
            server.processes, server.term = None, 0
            self._hosting.ended()
            self.capture.ended()
            self.feeds.clear()
            if not ends:  # a server that was drained may lead again
                server.liveness = ALIVE

    def _check_feeds(self) -> None:
        wrong = next((feed for feed in self.feeds.present.values() if feed.settings.cluster_id != self._server.cluster_id), None)
        if wrong is not None:
            raise ClusterMismatch(
                f"changefeed {wrong.id} of the log {redact(self._options.log)} is of cluster {wrong.settings.cluster_id}, "
                f"PD is of {self._server.cluster_id}",
                hint="Name the PD of that cluster, or another --log.",
            )

    def _check_log(self) -> None:
        reader = existing_log(self._options.log)
        if reader is not None:
            logged = reader.identity.cluster_id
            if logged != self._server.cluster_id:
                raise ClusterMismatch(
                    f"the log {redact(self._options.log)} is of cluster {logged}, PD is of cluster {self._server.cluster_id}",
                    hint="Name the PD of the log's cluster, or another --log.",
                )

    async def stop(self) -> None:
        """Let each changefeed end its batch, and end the processes."""
        self._server.liveness = STOPPING
        await self.leave(at_once=False)
        await self._upstream.close()

    async def captures(self) -> Sequence[s.CaptureInfo]:
        if self._elector is None:
            return [self._capture_info(self._server.id, self._options.address, own_version())]
        return [self._capture_info(member.id, member.address, member.version) for member in self._elector.members]

    def _capture_info(self, server_id: str, address: str, tidemill_version: str) -> s.CaptureInfo:
        return s.CaptureInfo(
            id=server_id,
            is_owner=server_id == self._server.id and self._server.term > 0,
            address=address,
            version=self._options.ticdc_version,
            tidemill_version=tidemill_version,
        )

    async def processors(self) -> Sequence[s.ProcessorInfo]:
        return [
            s.ProcessorInfo(s.DEFAULT_NAMESPACE, name, self._server.id)
            for name, feed in sorted(self.feeds.present.items())
            if feed.life.wanted
        ]

    async def processor(self, changefeed_id: str, capture_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> s.ProcessorInfo:
        feed = self.feeds.get(changefeed_id, namespace)
        await self._check_capture(capture_id)
        (status,) = await self._questions.task_status(feed) if capture_id == self._server.id else (s.TaskStatus(capture_id),)
        return s.ProcessorInfo(s.DEFAULT_NAMESPACE, feed.id, capture_id, status.table_ids)

    async def _check_capture(self, capture_id: str) -> None:
        if capture_id not in {capture.id for capture in await self.captures()}:
            raise e.CaptureNotExists(f"capture not exists, {capture_id}")

    async def status(self) -> s.ServerStatus:
        return s.ServerStatus(
            version=self._options.ticdc_version,
            tidemill_version=own_version(),
            git_hash="",
            id=self._server.id,
            cluster_id=s.CLUSTER_ID,
            pid=os.getpid(),
            is_owner=self._elector.leads if self._elector is not None else self._server.term > 0,
            liveness=self._server.liveness,
            upstream_id=int(self._server.cluster_id or 0),
            pd_addrs=self._options.pd_addrs,
            log=redact(self._options.log),
            started_at=time_of(self._server.started_at),
        )

    async def health(self) -> None:
        wrong = self._server.processes.trouble() if self._server.processes is not None else None
        if wrong is not None:
            raise e.Unhealthy(redact(wrong))

    async def resign_owner(self) -> None:
        if self._others and self._elector is not None:
            log.info("asked to resign: another server is to lead")
            self._elector.resign()
        else:
            log.info("asked to resign, but there is no other server")

    @property
    def _others(self) -> bool:
        return self._elector is not None and len(self._elector.members) > 1

    async def drain(self, capture_id: str) -> int:
        await self._check_capture(capture_id)
        if not self._others or self._elector is None:
            raise e.NowhereToDrain("there is no other server that could take the changefeeds over")
        if capture_id != self._server.id:
            return 0  # all work is where the leader is
        left = sum([len(status.table_ids) for feed in self.feeds.present.values() for status in await self._questions.task_status(feed)])
        self._server.liveness = DRAINING
        self._elector.resign(DRAINED_S)
        return left

    async def set_log_level(self, level: str) -> None:
        try:
            logs.set_level(level)
        except ConfigError as error:
            raise e.InvalidParameter(error.message, hint=error.hint) from error
        if self._server.processes is not None:
            self._server.processes.set_log_level(level)

    async def set_log_redaction(self, mode: str) -> None:
        if mode.lower() not in ("off", "marker", "on", "true", "false"):
            raise e.InvalidParameter(f"redact mode {mode!r} is none of off, marker, on")

    async def debug_info(self) -> Mapping[str, Any]:
        processes = [dict(process) for process in self.processes()]
        feeds = {
            name: {"state": str(feed.life.state), "run": feed.life.run, "runs": feed.life.runs, "checkpoint_ts": feed.checkpoint_ts}
            for name, feed in sorted(self.feeds.present.items())
        }
        return {"term": self._server.term, "processes": processes, "changefeeds": feeds}

    def figures(self) -> Mapping[str, Figures]:
        return {name: feed.figures for name, feed in self.feeds.present.items()}

    def processes(self) -> Sequence[Mapping[str, object]]:
        return self._server.processes.seen() if self._server.processes is not None else []

    def samples(self) -> Iterable[Sample]:
        yield from with_ticdc_names(feed_samples([*self.feeds.present.values()], time.time()))
        yield from process_samples(self.processes())
        yield from with_ticdc_names(self.capture_status().samples())
        yield from with_ticdc_names([build_info()])
        yield start_time(self._server.started_at)
        if self._elector is not None:
            yield from self._elector.samples()

    async def metadata(self) -> Sequence[s.EtcdEntry]:
        entries = [s.EtcdEntry(f"/tidemill/{s.CLUSTER_ID}/server", self._server.id)]
        for name, feed in sorted(self.feeds.present.items()):
            base = f"/tidemill/{s.CLUSTER_ID}/{s.DEFAULT_NAMESPACE}/changefeed"
            entries.append(s.EtcdEntry(f"{base}/info/{name}", f"{feed.life.state} {redact(feed.settings.sink_uri)}"))
            entries.append(s.EtcdEntry(f"{base}/status/{name}", str(feed.checkpoint_ts)))
        return entries

    async def delete_gc_safepoint(self) -> None:
        running = [name for name, feed in self.feeds.present.items() if feed.life.wanted]
        if running:
            raise e.UpdateRefused(f"changefeeds run: {', '.join(sorted(running))}", hint="Pause them first.")
        reader = await asyncio.to_thread(existing_log, self._options.log)
        if reader is not None:
            await self._upstream.let_go(reader.identity.extra)
            log.warning("PD no longer keeps history for the log, as was asked for; the capture has it kept again from where the log ends")
