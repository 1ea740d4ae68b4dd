"""Pumps that serve what a test gives them, and the meta keys of a cluster with one table."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import grpc

from tidemill import tso
from tidemill.binlog.messages import Binlog, BinlogType, MutationType, Prewritten, TableMutation
from tidemill.binlog.nodes import Node, NodeKind, NodeState
from tidemill.binlog.registry.client import Registry
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.client.tls import Security
from tidemill.playground.server import Playground
from tidemill.playground.services.gate import ServerTls
from tidemill.tidb import keys
from tidemill.tidb.datums import Datum, DatumFlag, encode_datum
from tidemill.wire import pump_pb2

BEGIN = tso.compose(1_750_000_000_000)
_INT = {"Tp": 3, "Flag": 4099, "Flen": 11, "Charset": "binary"}
TABLE = {
    "id": 50, "name": {"O": "t", "L": "t"}, "state": 5, "pk_is_handle": True,
    "cols": [{"id": 1, "name": {"O": "id", "L": "id"}, "offset": 0, "state": 5, "type": _INT}],
}  # fmt: skip


MARKS = {
    "id": 51, "name": {"O": "_drainer_repl_mark", "L": "_drainer_repl_mark"}, "state": 5,
    "cols": [
        {"id": n, "name": {"O": name, "L": name}, "offset": n - 1, "state": 5, "type": {**_INT, "Tp": 8, "Flag": 0}}
        for n, name in enumerate(("id", "channel_id", "val"), 1)
    ],
}  # fmt: skip


def kv() -> list[str]:
    """The meta keys of a cluster with the table test.t, and with that of a Drainer's marks."""
    one, two = (
        {"id": n, "db_name": {"O": name, "L": name}, "charset": "utf8mb4", "collate": "utf8mb4_bin", "state": 5}
        for n, name in ((2, "test"), (3, "retl"))
    )
    pairs = ((keys.db_key(2), one), (keys.table_key(2, 50), TABLE), (keys.db_key(3), two), (keys.table_key(3, 51), MARKS))
    return [json.dumps({"key_hex": key.hex(), "value_text": json.dumps(value), "commit_ts": BEGIN - 10}) for key, value in pairs]


def inserted(commit_ts: int, row: int, table_id: int = 50) -> Binlog:
    """A transaction of one row."""
    mutation = TableMutation(table_id, inserted=(encode_datum(Datum(DatumFlag.VARINT, row)) + b"\0",), sequence=(MutationType.INSERT,))
    return Binlog(BinlogType.COMMIT, commit_ts - 1, commit_ts, b"k", Prewritten(1, (mutation,)).encode())


@dataclass
class Pump:
    """Serves what it is given, and what is given later. `asked`: after which ts it was asked."""

    node_id: str
    binlogs: list[Binlog]
    cluster_id: int
    host: str = ""
    asked: list[int] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    breaks: int = 0

    def give(self, *binlogs: Binlog) -> None:
        self.binlogs.extend(binlogs)
        self.changed.set()

    async def pull(self, request: pump_pb2.PullBinlogReq, context: grpc.aio.ServicerContext) -> AsyncIterator[pump_pb2.PullBinlogResp]:
        if request.clusterID != self.cluster_id:
            await context.abort(grpc.StatusCode.UNKNOWN, f"cluster ID are mismatch, {request.clusterID} vs {self.cluster_id}")
        self.asked.append(request.startFrom.offset)
        last = request.startFrom.offset
        while True:
            self.changed.clear()
            for binlog in [one for one in self.binlogs if one.commit_ts > last]:
                last = binlog.commit_ts
                yield pump_pb2.PullBinlogResp(entity=pump_pb2.Entity(payload=binlog.encode()))
                if self.breaks:
                    self.breaks -= 1
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "broken")
            await self.changed.wait()


class PumpWorld:
    """The playground, and Pumps of the test."""

    def __init__(self, folder: Path, playground: Playground, pd: PdClient) -> None:
        self.folder, self.playground, self.pd = folder, playground, pd
        self.registry = Registry(pd)
        self.servers: list[grpc.aio.Server] = []
        self.credentials: grpc.ServerCredentials | None = None

    async def pump(self, node_id: str, *binlogs: Binlog, cluster_id: int = 0, register: bool = True) -> Pump:
        """Start a Pump that has these binlogs."""
        pump = Pump(node_id, list(binlogs), cluster_id or self.pd.cluster_id)
        server = grpc.aio.server()
        method = grpc.unary_stream_rpc_method_handler(
            pump.pull, pump_pb2.PullBinlogReq.FromString, pump_pb2.PullBinlogResp.SerializeToString
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("binlog.Pump", {"PullBinlogs": method}),))
        any_port, secured = "127.0.0.1:0", self.credentials
        pump.host = f"127.0.0.1:{server.add_insecure_port(any_port) if secured is None else server.add_secure_port(any_port, secured)}"
        await server.start()
        self.servers.append(server)
        if register:
            await self.state(pump, NodeState.ONLINE)
        return pump

    async def state(self, pump: Pump, state: NodeState) -> None:
        """Write a Pump's state into the registry."""
        await self.registry.put(NodeKind.PUMP, Node(pump.node_id, pump.host, state))


W = TypeVar("W", bound=PumpWorld)


@asynccontextmanager
async def world(
    folder: Path, make: type[W], meta: Iterable[str] | None = None, tls: ServerTls | None = None, security: Security | None = None
) -> AsyncIterator[W]:
    """A playground with the meta keys of `meta`, or those of one table. `tls`, `security`: how it is served, and reached."""
    playground = Playground(load_kv=kv() if meta is None else meta, tls=tls)
    await playground.start()
    pd = await PdClient.connect(playground.pd_address, security=security)
    made = make(folder, playground, pd)
    try:
        yield made
    finally:
        for server in made.servers:
            await server.stop(None)
        await pd.close()
        await playground.stop()
