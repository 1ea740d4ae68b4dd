"""The server: keeps the contract of `service.py` over the two processes and the files of the changefeeds.

Read `hosting.py` first (changefeeds and their host), then `questions.py` and `operations.py` (what the API asks for). Here is the server's
own: begin and end, its processes, its log, the cluster.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidemill import logs
from tidemill.changelog.reader import LogReader, log_exists
from tidemill.changelog.storage import durable
from tidemill.errors import ClusterMismatch, ConfigError, redact
from tidemill.metrics.samples import Sample
from tidemill.metrics.ticdc import with_ticdc_names
from tidemill.server import errors as e
from tidemill.server import service as s
from tidemill.server.feeds import time_of
from tidemill.server.host.messages import command
from tidemill.server.operations import Operations
from tidemill.server.options import own_version
from tidemill.server.status import capture_status, feed_samples

log = logging.getLogger(__name__)


class Manager(Operations):
    """A `ChangefeedService`."""

    async def start(self) -> None:
        """Read the changefeeds, look at cluster and log, start the processes. Raises what makes a start useless."""
        self._id = await asyncio.to_thread(self._own_id)
        await asyncio.to_thread(self._files.sweep)
        self._feeds = {feed.id: feed for feed in await asyncio.to_thread(self._files.load)}
        self._cluster_id = str((await self._upstream.connect()).cluster_id)
        await asyncio.to_thread(self._check_cluster)
        self._processes.start_host(self._heard, self._host_lost)
        if await asyncio.to_thread(log_exists, self._options.log):
            self._start_capture(None)
        elif self._feeds:
            self._start_capture(min(feed.checkpoint_ts for feed in self._feeds.values()))
        else:
            log.info("the log %s begins where the first changefeed does", redact(self._options.log))
        self._spawn(self._watch())
        log.info("the server has %d changefeeds", len(self._feeds))

    def _own_id(self) -> str:
        path = self._options.data_dir / "server.json"
        found = durable.read_json(path) or {}
        if not isinstance(found.get("id"), str):
            found = {"id": str(uuid.uuid4())}
            durable.write_json(path, found)
        return str(found["id"])

    def _check_cluster(self) -> None:
        wrong = next((feed for feed in self._feeds.values() if feed.settings.cluster_id != self._cluster_id), None)
        if wrong is not None:
            raise ClusterMismatch(
                f"changefeed {wrong.id} in {self._options.data_dir} is of cluster {wrong.settings.cluster_id}, PD is of {self._cluster_id}",
                hint="Name the PD of that cluster, or another --data-dir.",
            )
        if log_exists(self._options.log):
            found = LogReader(self._options.log).identity.cluster_id
            if found != self._cluster_id:
                raise ClusterMismatch(
                    f"the log {redact(self._options.log)} is of cluster {found}, PD is of cluster {self._cluster_id}",
                    hint="Name the PD of the log's cluster, or another --log.",
                )

    async def stop(self) -> None:
        """Let each changefeed end its batch, and end the processes."""
        self._liveness = 2
        for timer in self._timers.values():
            timer.cancel()
        await self._processes.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._upstream.close()

    async def captures(self) -> Sequence[s.CaptureInfo]:
        return [s.CaptureInfo(self._id, True, self._options.address)]

    async def processors(self) -> Sequence[s.ProcessorInfo]:
        return [s.ProcessorInfo(s.DEFAULT_NAMESPACE, name, self._id) for name, feed in sorted(self._feeds.items()) if feed.life.wanted]

    async def processor(self, changefeed_id: str, capture_id: str, *, namespace: str = s.DEFAULT_NAMESPACE) -> s.ProcessorInfo:
        feed = self._feed(changefeed_id, namespace)
        self._check_capture(capture_id)
        (status,) = await self._task_status(feed)
        return s.ProcessorInfo(s.DEFAULT_NAMESPACE, feed.id, self._id, status.table_ids)

    def _check_capture(self, capture_id: str) -> None:
        if capture_id != self._id:
            raise e.CaptureNotExists(f"capture not exists, {capture_id}")

    async def status(self) -> s.ServerStatus:
        return s.ServerStatus(
            version=own_version(),
            git_hash="",
            id=self._id,
            cluster_id=s.CLUSTER_ID,
            pid=os.getpid(),
            is_owner=True,
            liveness=self._liveness,
            upstream_id=int(self._cluster_id or 0),
            pd_addrs=self._options.pd_addrs,
            log=redact(self._options.log),
            started_at=time_of(self._started_at),
        )

    async def health(self) -> None:
        wrong = self._processes.trouble()
        if wrong is not None:
            raise e.Unhealthy(redact(wrong))

    async def resign_owner(self) -> None:
        log.info("asked to resign, but there is no other server")

    async def drain(self, capture_id: str) -> int:
        self._check_capture(capture_id)
        raise e.UpdateRefused("there is no other server that could take the changefeeds over")

    async def set_log_level(self, level: str) -> None:
        try:
            logs.set_level(level)
        except ConfigError as error:
            raise e.InvalidParameter(error.message, hint=error.hint) from error
        self._tell(command("log", level=level))

    async def set_log_redaction(self, mode: str) -> None:
        if mode.lower() not in ("off", "marker", "on", "true", "false"):
            raise e.InvalidParameter(f"redact mode {mode!r} is none of off, marker, on")

    async def debug_info(self) -> Mapping[str, Any]:
        feeds = {
            name: {"state": str(feed.life.state), "run": feed.life.run, "runs": feed.life.runs, "checkpoint_ts": feed.checkpoint_ts}
            for name, feed in sorted(self._feeds.items())
        }
        return {"processes": [dict(one) for one in self._processes.seen()], "changefeeds": feeds}

    def samples(self) -> Iterable[Sample]:
        yield from with_ticdc_names(feed_samples(self._feeds.values(), time.time()))
        yield from with_ticdc_names(capture_status(self._options.data_dir / "capture").samples())

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
