"""The calls of a Pump: WriteBinlog and PullBinlogs. `handler` is the way to them by gRPC's own server; `http2.py` has ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeAlias

import grpc
import grpc.aio

from tidemill.binlog.groups import Groups
from tidemill.binlog.http2.frames import Status
from tidemill.binlog.messages import BinlogType, Head, read_head
from tidemill.binlog.nodes import NodeState
from tidemill.binlog.pump.faults import BinlogsGone, PumpCorrupt, PumpFailed, PumpRefused
from tidemill.binlog.pump.pulling import Batch, Puller
from tidemill.binlog.pump.store import VALUE_FOLDER, Store, unwritten
from tidemill.errors import MalformedMessage
from tidemill.tso import describe
from tidemill.wire import pump_pb2

Context: TypeAlias = grpc.aio.ServicerContext

OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
    ("grpc.max_concurrent_streams", 1024),
    ("grpc.max_connection_idle_ms", 3_600_000),
)
_OK = pump_pb2.WriteBinlogResp().SerializeToString()


class Owner(Protocol):
    """What the service asks its process."""

    cluster_id: int
    store: Store
    folder: Path

    @property
    def state(self) -> NodeState:
        """The state in the registry."""

    @property
    def has_space(self) -> bool:
        """Whether the disk has room for Prewrites."""

    def check_space(self) -> None:
        """Raises PumpRefused when the disk is too full."""

    def wrote(self) -> None:
        """Somebody wrote a binlog."""

    async def wait_moved(self, beyond: int) -> int:
        """Wait until more than `beyond` can be pulled; returns up to where."""


class PumpService:
    """The calls."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self.lost = 0
        """Commits without a Prewrite that pullers met."""
        self.pulls = 0
        """Streams that are open."""

    def handler(self) -> grpc.GenericRpcHandler:
        """The gRPC handler of `binlog.Pump`."""
        methods = {
            "WriteBinlog": grpc.unary_unary_rpc_method_handler(self._write, pump_pb2.WriteBinlogReq.FromString, None),
            "PullBinlogs": grpc.unary_stream_rpc_method_handler(self._pull, pump_pb2.PullBinlogReq.FromString, None),
        }
        return grpc.method_handlers_generic_handler("binlog.Pump", methods)

    async def _write(self, request: pump_pb2.WriteBinlogReq, context: Context) -> bytes:
        try:
            head = self.admit(request.clusterID, request.payload)
            if head is not None:
                await self._owner.store.write(request.payload, head)
        except (PumpRefused, PumpFailed, MalformedMessage) as error:
            await _abort(context, Status.UNKNOWN, error.message)
        except OSError as error:
            await _abort(context, Status.UNKNOWN, unwritten(error))
        return _OK

    def open_for(self, groups: Groups) -> None:
        """Say what kernels may take now without asking `admit`."""
        owner = self._owner
        groups.say(owner.cluster_id, prewrites=owner.state is NodeState.ONLINE and owner.has_space)

    def wrote(self) -> None:
        """Binlogs were taken without `admit`."""
        self._owner.wrote()

    def admit(self, cluster_id: int, payload: bytes) -> Head | None:
        """Say whether a binlog is taken. None: it is a probe, with nothing to write. Raises PumpRefused, PumpFailed, MalformedMessage."""
        owner = self._owner
        if cluster_id != owner.cluster_id:
            raise PumpRefused(f"cluster ID are mismatch, {cluster_id} vs {owner.cluster_id}")
        if not payload:
            owner.check_space()
            return None
        head = read_head(payload)
        owner.wrote()
        if head.tp is BinlogType.PREWRITE:
            if owner.state is not NodeState.ONLINE:
                raise PumpRefused(f"no online: {owner.state}")
            owner.check_space()
        owner.store.check_open()
        return head

    async def _pull(self, request: pump_pb2.PullBinlogReq, context: Context) -> AsyncIterator[bytes]:
        try:
            async for batch in self.pull(request):
                for answer in batch.answers:
                    yield answer
        except PullRefused as refused:
            await _abort(context, refused.status, refused.message)

    async def pull(self, request: pump_pb2.PullBinlogReq) -> AsyncGenerator[Batch, None]:
        """Yield the binlogs behind a position, forever. Raises PullRefused."""
        owner = self._owner
        if request.clusterID != owner.cluster_id:
            raise PullRefused(Status.UNKNOWN, f"cluster ID are mismatch, {request.clusterID} vs {owner.cluster_id}")
        store = owner.store
        last = max(request.startFrom.offset, 0) or store.index.gc_ts()
        puller = Puller(store.index, owner.folder / VALUE_FOLDER)
        self.pulls += 1
        try:
            while True:
                upto = await owner.wait_moved(last)
                _check_there(last, store)
                batch = await asyncio.to_thread(puller.after, last, upto)
                _check_there(last, store)  # garbage collection may have gone on meanwhile
                yield batch
                last = batch.upto
                self.lost, puller.lost = self.lost + puller.lost, 0
        except BinlogsGone as error:
            raise PullRefused(Status.OUT_OF_RANGE, str(error)) from None
        except PumpCorrupt as error:
            _check_still(last, store)
            raise PullRefused(Status.DATA_LOSS, str(error)) from None
        finally:
            self.pulls -= 1
            await asyncio.to_thread(puller.close)


class PullRefused(Exception):
    """A stream of PullBinlogs ends with a status."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


def _check_still(last: int, store: Store) -> None:
    """Raises PullRefused if what is missing was collected."""
    try:
        _check_there(last, store)
    except BinlogsGone as error:
        raise PullRefused(Status.OUT_OF_RANGE, str(error)) from None


def _check_there(last: int, store: Store) -> None:
    """Raises BinlogsGone if what follows `last` was collected."""
    gone = store.index.gc_ts()
    if last < gone:
        raise BinlogsGone(
            f"binlogs up to {describe(gone)} were collected as garbage, and those after {describe(last)} are asked for",
            hint="What lies between is lost to this Drainer. Load the data again, and start it with a later initial-commit-ts.",
        )


_CODES = {code.value[0]: code for code in grpc.StatusCode}


async def _abort(context: Any, status: Status, text: str) -> NoReturn:
    await context.abort(_CODES[status], text)
    raise AssertionError("unreachable")
