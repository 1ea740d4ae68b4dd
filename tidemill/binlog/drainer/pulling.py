"""Pulls one Pump's binlogs into the merge, for as long as it is told to. A broken stream is made again from the newest ts that came."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from tidemill.binlog.blocks import Array, Room, plain_memory, read_messages
from tidemill.binlog.merge import Merge
from tidemill.binlog.nodes import Node
from tidemill.capture.tikv.client.tls import Security
from tidemill.capture.tikv.feed.http2 import connect
from tidemill.capture.tikv.receive.decode import PAD, Packed
from tidemill.errors import ClusterMismatch, MalformedMessage, TidemillError
from tidemill.wire import pump_pb2

RETRY_S = 1.0
LARGEST = (1 << 31) - (1 << 20)
"""Bytes of a binlog, at most; TiDB sends no more than 2 GiB."""

_log = logging.getLogger(__name__)


class _PullBinlogs:
    """The call."""

    def __str__(self) -> str:
        return "/binlog.Pump/PullBinlogs"

    @property
    def metadata(self) -> Sequence[tuple[str, str]]:
        """None."""
        return ()


class Puller:
    """`most`: bytes of a Pump that wait in the merge, about; one binlog may be larger, and is in memory of `room`. `moved` is called
    after the merge got binlogs."""

    def __init__(
        self, merge: Merge, security: Security | None, cluster_id: int, most: int, moved: Callable[[], None], room: Room = plain_memory
    ) -> None:
        self._merge, self._security, self._cluster_id, self._most, self._moved = merge, security, cluster_id, most, moved
        self._room = room
        self._streams: dict[str, _Stream] = {}
        self.problems: dict[str, str] = {}
        """Why a Pump cannot be pulled from just now."""

    def taken(self) -> None:
        """The merge gave binlogs out: streams that wait for room go on."""
        for node_id, stream in self._streams.items():
            if stream.waits and self._merge.waiting(node_id) < self._most:
                stream.go_on()

    async def pull(self, node: Callable[[], Node]) -> None:
        """Pull until cancelled; `node` tells where the Pump is now. Raises ClusterMismatch, MalformedMessage."""
        node_id = node().node_id
        try:
            while True:
                host = node().host
                problem = await self._pulled(node_id, host)
                if self.problems.get(node_id) != problem:
                    _log.warning("Pump %s at %s: %s; trying again every %g s", node_id, host, problem, RETRY_S)
                self.problems[node_id] = problem
                await asyncio.sleep(RETRY_S)
        finally:
            self.problems.pop(node_id, None)

    async def _pulled(self, node_id: str, host: str) -> str:
        """Pull until the stream ends. Returns why it did. Raises ClusterMismatch, MalformedMessage."""
        stream = self._streams[node_id] = _Stream(lambda message: self._take(node_id, host, message))
        try:
            feed = await connect(host, 0, stream, _PullBinlogs(), self._security, largest=LARGEST, memory=self._room)
            try:
                start = pump_pb2.Pos(offset=self._merge.join(node_id))
                feed.send(pump_pb2.PullBinlogReq(clusterID=self._cluster_id, startFrom=start).SerializeToString(), last=True)
                either: list[asyncio.Future[Any]] = [feed.ended, stream.failed]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            finally:
                stream.close()
                feed.cancel()
        except (OSError, ValueError) as error:
            return str(error)
        finally:
            del self._streams[node_id]
        if stream.failed.done():
            stream.failed.result()
        end = feed.ended.result()
        if "mismatch" in end.text:
            raise ClusterMismatch(f"Pump {node_id} at {host} is of another cluster: {end.text}")
        return f"the stream ended with {end}"

    def _take(self, node_id: str, host: str, message: Packed) -> bool:
        """Give messages to the merge. Returns whether there is room for more. Raises MalformedMessage."""
        if self.problems.pop(node_id, None) is not None:
            _log.info("Pump %s at %s answers again", node_id, host)
        try:
            self._merge.add(node_id, read_messages(_own(message), message.ends))
        except MalformedMessage as error:
            raise MalformedMessage(f"Pump {node_id} at {host}: {error.message}") from None
        self._moved()
        return self._merge.waiting(node_id) < self._most


class _Stream:
    """Takes what one stream receives."""

    def __init__(self, take: Callable[[Packed], bool]) -> None:
        self._take = take
        self._go_on: Callable[[], object] | None = None
        self._closed = False
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def waits(self) -> bool:
        """Whether it waits for room."""
        return self._go_on is not None

    def go_on(self) -> None:
        """There is room again."""
        call, self._go_on = self._go_on, None
        if call is not None:
            call()

    def close(self) -> None:
        """Take nothing any more: what comes after this is pulled again."""
        self._closed = True

    def put(self, _slot: int, message: Packed) -> bool:
        """Take messages. Returns whether there is room for more."""
        if self._closed or self.failed.done():
            return False
        try:
            return self._take(message)
        except TidemillError as error:
            self.failed.set_exception(error)
            return False

    def when_room(self, call: Callable[[], object]) -> None:
        """Call `call` when there is room again."""
        self._go_on = call


def _own(message: Packed) -> Array:
    """Return the bytes of messages in memory that has about their size, and give the receive buffer back if they are few."""
    size = len(message)
    if 2 * size > len(message.data):
        return message.data
    data: Array = message.data[: size + PAD].copy()
    message.give_back()
    return data
