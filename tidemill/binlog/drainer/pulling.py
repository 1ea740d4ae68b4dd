"""Pulls one Pump's binlogs into the merge, for as long as it is told to. A broken stream is made again from the newest ts that came."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import grpc

from tidemill.binlog.merge import Merge
from tidemill.binlog.messages import Binlog, read_binlog
from tidemill.binlog.nodes import Node
from tidemill.capture.tikv.client.channels import Channels
from tidemill.errors import ClusterMismatch
from tidemill.wire import pump_pb2

RETRY_S = 1.0
_PULL = "/binlog.Pump/PullBinlogs"

_log = logging.getLogger(__name__)


class Puller:
    """`most`: bytes of a Pump that wait in the merge, at most; one binlog may be larger. `moved` is called after each binlog."""

    def __init__(self, merge: Merge[Binlog], channels: Channels, cluster_id: int, most: int, moved: Callable[[], None]) -> None:
        self._merge, self._channels, self._cluster_id, self._most, self._moved = merge, channels, cluster_id, most, moved
        self._room: dict[str, asyncio.Event] = {}
        self.problems: dict[str, str] = {}
        """Why a Pump cannot be pulled from just now."""

    def taken(self) -> None:
        """The merge gave binlogs out: streams that wait for room go on."""
        for node_id, room in self._room.items():
            if self._merge.waiting(node_id) < self._most:
                room.set()

    async def pull(self, node: Callable[[], Node]) -> None:
        """Pull until cancelled; `node` tells where the Pump is now. Raises ClusterMismatch, MalformedMessage."""
        node_id = node().node_id
        room = self._room[node_id] = asyncio.Event()
        try:
            while True:
                host = node().host
                try:
                    await self._stream(node_id, host, room)
                    problem = "the stream ended"
                except grpc.aio.AioRpcError as error:
                    problem = f"{error.code().name} {error.details()}"
                    if "mismatch" in (error.details() or ""):
                        raise ClusterMismatch(f"Pump {node_id} at {host} is of another cluster: {error.details()}") from None
                if self.problems.get(node_id) != problem:
                    _log.warning("Pump %s at %s: %s; trying again every %g s", node_id, host, problem, RETRY_S)
                self.problems[node_id] = problem
                await asyncio.sleep(RETRY_S)
        finally:
            self.problems.pop(node_id, None)
            del self._room[node_id]

    async def _stream(self, node_id: str, host: str, room: asyncio.Event) -> None:
        request = pump_pb2.PullBinlogReq(clusterID=self._cluster_id, startFrom=pump_pb2.Pos(offset=self._merge.join(node_id)))
        call: Any = self._channels.get(host).unary_stream(
            _PULL, pump_pb2.PullBinlogReq.SerializeToString, pump_pb2.PullBinlogResp.FromString
        )(request)
        try:
            async for answer in call:
                if self.problems.pop(node_id, None) is not None:
                    _log.info("Pump %s at %s answers again", node_id, host)
                self._take(node_id, answer.entity.payload)
                while self._merge.waiting(node_id) >= self._most:
                    room.clear()
                    await room.wait()
        finally:
            call.cancel()

    def _take(self, node_id: str, payload: bytes) -> None:
        binlog = read_binlog(payload)
        if binlog.is_fake:
            self._merge.told(node_id, binlog.commit_ts)
        else:
            self._merge.add(node_id, binlog.commit_ts, binlog.start_ts, binlog, len(payload))
        self._moved()
