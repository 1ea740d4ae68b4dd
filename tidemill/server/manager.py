"""The server: keeps the contract of `service.py` over the two processes and the files of the changefeeds.

Read `changefeeds` first: it keeps them, and does what the API asks for. Here is the server's
own: begin and end, its processes, its log, the cluster.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tidemill import logs
from tidemill.capture.status import CaptureStatus
from tidemill.changelog.reader import LogReader, log_exists
from tidemill.errors import ClusterMismatch, ConfigError, redact
from tidemill.metrics.samples import Sample, build_info
from tidemill.metrics.ticdc import with_ticdc_names
from tidemill.server import errors as e
from tidemill.server import service as s
from tidemill.server.changefeeds.hosting import MakeProcesses
from tidemill.server.changefeeds.operations import Operations
from tidemill.server.feeds import time_of
from tidemill.server.host.messages import Figures
from tidemill.server.options import ServerOptions, own_id, own_version
from tidemill.server.shared.elector import DRAINED_S, Elector
from tidemill.server.status import capture_status, feed_samples, process_samples
from tidemill.server.upstream import Upstream

log = logging.getLogger(__name__)


WRITES_S = 3.0
"""How long states are written at the end, at most."""
DRAINING, STOPPING = 1, 2
"""TiCDC's words for a server that is not just alive (0)."""


class Manager(Operations):
    """A `ChangefeedService`, and the `Office` of the server that leads."""

    def __init__(
        self, options: ServerOptions, upstream: Upstream, processes: MakeProcesses, stand_by: Callable[[], None] = lambda: None
    ) -> None:
        """`stand_by`: lets processes wait for the day when this server leads."""
        super().__init__(options, upstream, processes)
        self._stand_by = stand_by
        self._elector: Elector | None = None
        self._term = 0
        self._watching: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()  # of two changes between leading and following

    async def start(self) -> None:
        """Look at the cluster, the log and what servers share. Raises what makes a start useless."""
        self._id = await asyncio.to_thread(own_id, self._options.data_dir)
        self._cluster_id = str((await self._upstream.connect()).cluster_id)
        await asyncio.to_thread(self._files.check)
        await asyncio.to_thread(self._check_log)

    def elects(self, elector: Elector) -> None:
        """It may lead when this one says so."""
        self._elector, self._deposed = elector, elector.failed

    @property
    def id(self) -> str:
        return self._id

    # ---- an `Office`

    def follow(self) -> None:
        """Another server leads: have the processes ready."""
        self._stand_by()

    async def lead(self, term: int) -> None:
        """Take the changefeeds over, and start the processes. `term`: of the lease. Raises TidemillError."""
        async with self._changing:
            self._term, feeds = await asyncio.to_thread(self._files.take, term, self._id)
            self._feeds = {feed.id: feed for feed in feeds}
            self._check_feeds()
            self._processes = self._make_processes(lambda: self._batches, self._term)
            self._processes.start_host(self._heard, self._host_lost)
            if await asyncio.to_thread(log_exists, self._options.log):
                await self._start_capture(None)
            elif self._feeds:
                await self._start_capture(min(feed.checkpoint_ts for feed in self._feeds.values()))
            else:
                log.info("the log %s begins where the first changefeed does", redact(self._options.log))
            self._watching = asyncio.create_task(self._watch())
            log.info("the server leads in term %d; it has %d changefeeds", self._term, len(self._feeds))

    async def leave(self, *, at_once: bool) -> None:
        """Stop the processes. `at_once`: another server leads; else each changefeed ends its batch."""
        async with self._changing:
            ends, self._liveness = self._liveness == STOPPING, STOPPING
            if self._watching is not None:
                self._watching.cancel()
            for timer in self._timers.values():
                timer.cancel()
            if self._processes is not None:
                await (self._processes.kill() if at_once else self._processes.stop())
            if not at_once:
                await self._write("all", self._files.flush)
                if self._tasks:
                    await asyncio.wait({*self._tasks}, timeout=WRITES_S)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._processes, self._host_up, self._captures = None, False, False
            self._feeds, self._term = {}, 0
            self._timers.clear()
            if not ends:  # a server that was drained may lead again
                self._liveness = 0

    def _check_feeds(self) -> None:
        wrong = next((feed for feed in self._feeds.values() if feed.settings.cluster_id != self._cluster_id), None)
        if wrong is not None:
            raise ClusterMismatch(
                f"changefeed {wrong.id} of the log {redact(self._options.log)} is of cluster {wrong.settings.cluster_id}, "
                f"PD is of {self._cluster_id}",
                hint="Name the PD of that cluster, or another --log.",
            )

    def _check_log(self) -> None:
        if log_exists(self._options.log):
            found = LogReader(self._options.log).identity.cluster_id
            if found != self._cluster_id:
                raise ClusterMismatch(
                    f"the log {redact(self._options.log)} is of cluster {found}, PD is of cluster {self._cluster_id}",
                    hint="Name the PD of the log's cluster, or another --log.",
                )

    async def stop(self) -> None:
        """Let each changefeed end its batch, and end the processes."""
        self._liveness = STOPPING
        await self.leave(at_once=False)
        await self._upstream.close()

    async def captures(self) -> Sequence[s.CaptureInfo]:
        if self._elector is None:
            return [self._capture_info(self._id, self._options.address, own_version())]
        return [self._capture_info(one.id, one.address, one.version) for one in self._elector.members]

    def _capture_info(self, server_id: str, address: str, tidemill_version: str) -> s.CaptureInfo:
        return s.CaptureInfo(
            id=server_id,
            is_owner=server_id == self._id and self._term > 0,
            address=address,
            version=self._options.ticdc_version,
            tidemill_version=tidemill_version,
        )

    async def processors(self) -> Sequence[s.ProcessorInfo]:
        return [s.ProcessorInfo(s.DEFAULT_NAMESPACE, name, self._id) for name, feed in sorted(self._feeds.items()) if feed.life.wanted]

    async def processor(self, changefeed_id: str, capture_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> s.ProcessorInfo:
        feed = self._feed(changefeed_id, namespace)
        await self._check_capture(capture_id)
        (status,) = await self._task_status(feed) if capture_id == self._id else (s.TaskStatus(capture_id),)
        return s.ProcessorInfo(s.DEFAULT_NAMESPACE, feed.id, capture_id, status.table_ids)

    async def _check_capture(self, capture_id: str) -> None:
        if capture_id not in {one.id for one in await self.captures()}:
            raise e.CaptureNotExists(f"capture not exists, {capture_id}")

    async def status(self) -> s.ServerStatus:
        return s.ServerStatus(
            version=self._options.ticdc_version,
            tidemill_version=own_version(),
            git_hash="",
            id=self._id,
            cluster_id=s.CLUSTER_ID,
            pid=os.getpid(),
            is_owner=self._elector.leads if self._elector is not None else self._term > 0,
            liveness=self._liveness,
            upstream_id=int(self._cluster_id or 0),
            pd_addrs=self._options.pd_addrs,
            log=redact(self._options.log),
            started_at=time_of(self._started_at),
        )

    async def health(self) -> None:
        wrong = self._processes.trouble() if self._processes is not None else None
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
            raise e.UpdateRefused("there is no other server that could take the changefeeds over")
        if capture_id != self._id:
            return 0  # all work is where the leader is
        left = sum([len(one.table_ids) for feed in self._feeds.values() for one in await self._task_status(feed)])
        self._liveness = DRAINING
        self._elector.resign(DRAINED_S)
        return left

    async def set_log_level(self, level: str) -> None:
        try:
            logs.set_level(level)
        except ConfigError as error:
            raise e.InvalidParameter(error.message, hint=error.hint) from error
        if self._processes is not None:
            self._processes.set_log_level(level)

    async def set_log_redaction(self, mode: str) -> None:
        if mode.lower() not in ("off", "marker", "on", "true", "false"):
            raise e.InvalidParameter(f"redact mode {mode!r} is none of off, marker, on")

    async def debug_info(self) -> Mapping[str, Any]:
        seen = [dict(one) for one in self._processes.seen()] if self._processes is not None else []
        feeds = {
            name: {"state": str(feed.life.state), "run": feed.life.run, "runs": feed.life.runs, "checkpoint_ts": feed.checkpoint_ts}
            for name, feed in sorted(self._feeds.items())
        }
        return {"term": self._term, "processes": seen, "changefeeds": feeds}

    def figures(self) -> Mapping[str, Figures]:
        return {name: feed.figures for name, feed in self._feeds.items()}

    def capture_status(self) -> CaptureStatus:
        return capture_status(self._options.data_dir / "capture")

    def processes(self) -> Sequence[Mapping[str, object]]:
        return self._processes.seen() if self._processes is not None else []

    def samples(self) -> Iterable[Sample]:
        yield from with_ticdc_names(feed_samples([*self._feeds.values()], time.time()))
        yield from process_samples(self.processes())
        yield from with_ticdc_names(capture_status(self._options.data_dir / "capture").samples())
        yield from with_ticdc_names([build_info()])
        if self._elector is not None:
            yield from self._elector.samples()

    async def tso(self) -> s.Tso:
        return await self._upstream.tso()

    async def metadata(self) -> Sequence[s.EtcdEntry]:
        entries = [s.EtcdEntry(f"/tidemill/{s.CLUSTER_ID}/server", self._id)]
        for name, feed in sorted(self._feeds.items()):
            base = f"/tidemill/{s.CLUSTER_ID}/{s.DEFAULT_NAMESPACE}/changefeed"
            entries.append(s.EtcdEntry(f"{base}/info/{name}", f"{feed.life.state} {redact(feed.settings.sink_uri)}"))
            entries.append(s.EtcdEntry(f"{base}/status/{name}", str(feed.checkpoint_ts)))
        return entries

    async def resolve_lock(self, region_id: int, ts: int | None = None) -> int:
        return await self._upstream.resolve_lock(region_id, ts)

    async def delete_gc_safepoint(self) -> None:
        running = [name for name, feed in self._feeds.items() if feed.life.wanted]
        if running:
            raise e.UpdateRefused(f"changefeeds run: {', '.join(sorted(running))}", hint="Pause them first.")
        raise e.UpdateRefused(
            "the capture holds the cluster's history for its log, whatever changefeeds there are",
            hint="Stop the server: the cluster is free after --gc-ttl.",
        )
