"""Writes binlogs into the Pumps of a cluster, as TiDB does: Pumps by a watch of the registry, calls by gRPC."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from tidemill.binlog.client.attempts import Attempt, CommitAttempts, Done, GiveUp, Outcome, PrewriteAttempts, Wait
from tidemill.binlog.client.options import ClientOptions
from tidemill.binlog.client.pumps import Pumps
from tidemill.binlog.messages import Binlog, BinlogType
from tidemill.binlog.nodes import NodeKind
from tidemill.binlog.registry.client import Registry
from tidemill.capture.tikv.client.channels import Channels
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.errors import UpstreamUnavailable
from tidemill.tso import describe
from tidemill.wire import pump_pb2

_WRITE = "/binlog.Pump/WriteBinlog"
_LOOK_S = 1.0
"""Seconds between two looks for Pumps that are to be probed."""

_log = logging.getLogger(__name__)


class PumpClient:
    """Belongs to one event loop. `start` it, and `close` it. `clock` and `sleep` are for tests: seconds."""

    def __init__(
        self,
        pd: PdClient,
        options: ClientOptions | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.options = options or ClientOptions()
        self.pumps = Pumps(self.options)
        self.skipping = False
        """Whether it gave up writing binlogs, after an error that is to be ignored."""
        self.skipped = 0
        """Binlogs that were not written since."""
        self._pd, self._registry = pd, Registry(pd)
        self._clock, self._sleep = clock, sleep
        self._channels = Channels(pd.channels.security)
        self._open: dict[str, Any] = {}
        self._left: set[asyncio.Future[None]] = set()  # connections that are being closed
        self._of: dict[int, str] = {}  # start_ts of a Prewrite → the Pump that has it
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Read which Pumps there are. Raises UpstreamUnavailable, also if none is online: TiDB does not start then."""
        self.pumps.look(await self._registry.nodes(NodeKind.PUMP))
        if not self.pumps.online:
            labels = ", ".join(f"{name}={value}" for name, value in sorted(self.options.labels.items()))
            raise UpstreamUnavailable(
                "no Pump in the registry is online" + (f" and has the labels {labels}" if labels else ""),
                hint="Start one: tidemill pump. `tidemill binlogctl --cmd pumps` lists them.",
            )
        self._tasks = [asyncio.ensure_future(self._follow()), asyncio.ensure_future(self._probe())]

    async def close(self) -> None:
        """Close all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for channel in self._open.values():
            await channel.close()
        self._open.clear()
        for closing in list(self._left):
            closing.cancel()
        await asyncio.gather(*self._left, return_exceptions=True)

    def recover(self) -> None:
        """Write binlogs again. What was skipped is lost to them."""
        if self.skipping:
            _log.warning("binlogs are written again; %d were skipped", self.skipped)
        self.skipping, self.skipped = False, 0

    # ---- writing

    async def write(self, binlog: Binlog) -> None:
        """Write a binlog. Raises UpstreamUnavailable if no Pump takes it; with `ignore_error` it is skipped instead, and all that follow.

        A Commit and a Rollback go to the Pump that has the Prewrite. Without one there is nothing to write.
        """
        if self.skipping:
            self.skipped += 1
            return
        payload = binlog.encode()
        if binlog.tp is not BinlogType.PREWRITE:
            await self._end(binlog, payload)
            return
        attempts = PrewriteAttempts(self.pumps, self.options, binlog.start_ts, self._clock())
        found = await self._run(attempts, payload)
        if isinstance(found, Done):
            self._of[binlog.start_ts] = found.node_id
            return
        text = f"no Pump took the Prewrite of the transaction of {describe(binlog.start_ts)}: {found.why}"
        if not self.options.ignore_error:
            raise UpstreamUnavailable(text, hint="Are the Pumps running, and is there room on their disks? See /status of each.")
        self.skipping, self.skipped = True, 1
        _log.error("%s; from now on no binlog is written, until somebody recovers it", text)

    async def _end(self, binlog: Binlog, payload: bytes) -> None:
        node_id = self._of.pop(binlog.start_ts, None)
        if node_id is None:
            return
        found = await self._run(CommitAttempts(self.options, node_id, self._clock()), payload)
        if isinstance(found, GiveUp):
            _log.warning(
                "the %s of the transaction of %s is not written, Pump %s asks TiKV for it: %s",
                *(binlog.tp.name.title(), describe(binlog.start_ts), node_id, found.why),
            )

    async def _run(self, attempts: PrewriteAttempts | CommitAttempts, payload: bytes) -> Done | GiveUp:
        while True:
            step = attempts.next(self._clock())
            match step:
                case Attempt(node_id):
                    outcome, why = await self._try(node_id, payload)
                    attempts.ended(self._clock(), node_id, outcome, why)
                case Wait(seconds):
                    await self._sleep(seconds)
                case Done() | GiveUp():
                    return step

    async def _try(self, node_id: str, payload: bytes) -> tuple[Outcome, str]:
        """Write to a Pump once. Returns how that ended, and what was said."""
        if len(payload) > self.options.most_bytes:
            return Outcome.TOO_LARGE, f"it has {len(payload)} bytes, and {self.options.most_bytes} are taken at most"
        host = self.pumps.host(node_id)
        if host is None:
            if self.pumps.is_gone(node_id):
                return Outcome.GONE, f"Pump {node_id} has gone offline"
            return Outcome.REFUSED, f"Pump {node_id} is not online any more"
        began = self._clock()
        self.pumps.begun(node_id)
        outcome, said = await self._call(host, payload)
        good = outcome is Outcome.WRITTEN
        if self.pumps.ended(node_id, self._clock(), self._clock() - began, good=good):
            _log.warning("Pump %s is %s", node_id, "available again" if good else f"passed over, until it answers again: {said}")
        return outcome, f"Pump {node_id} at {host}: {said}"

    async def _call(self, host: str, payload: bytes) -> tuple[Outcome, str]:
        channel: Any = self._open.get(host)
        if channel is None:
            try:
                channel = self._open[host] = self._channels.own(host)
            except UpstreamUnavailable as error:
                return Outcome.REFUSED, error.message
        call = channel.unary_unary(_WRITE, pump_pb2.WriteBinlogReq.SerializeToString, pump_pb2.WriteBinlogResp.FromString)
        request = pump_pb2.WriteBinlogReq(clusterID=self._pd.cluster_id, payload=payload)
        try:
            answer = await call(request, timeout=self.options.write_timeout)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                self._drop(host, channel)
            too_large = error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            return Outcome.TOO_LARGE if too_large else Outcome.REFUSED, f"{error.code().name} {error.details()}"
        return (Outcome.REFUSED, answer.errmsg) if answer.errmsg else (Outcome.WRITTEN, "")

    def _drop(self, host: str, channel: Any) -> None:
        """Use a new connection from now on. Calls of the old one end by themselves: closing it at once would cancel them."""
        if host in self._open and self._open[host] is channel:
            del self._open[host]
            closing = asyncio.ensure_future(channel.close(self.options.write_timeout))
            self._left.add(closing)
            closing.add_done_callback(self._left.discard)

    # ---- Pumps

    async def _follow(self) -> None:
        async for nodes in self._registry.watch(NodeKind.PUMP):
            self.pumps.look(nodes)

    async def _probe(self) -> None:
        """Write an empty binlog to Pumps that are passed over, now and then: it is not kept."""
        while True:
            await self._sleep(min(_LOOK_S, self.options.probe_every))
            for node_id in self.pumps.to_probe(self._clock()):
                await self._try(node_id, b"")
