"""A Pump on the event loop of a test, with a playground for PD and TiKV, and what a client and a Drainer do to it."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from tests.support.binlog.binlogs import until
from tidemill.binlog.nodes import Node, NodeEvent, NodeKind, NodeState, read_node
from tidemill.binlog.pump.server import Pump
from tidemill.binlog.pump.settings import PumpSettings
from tidemill.playground.server import Playground
from tidemill.process.ports import free_ports
from tidemill.wire import pump_pb2, pump_pb2_grpc

NODE_ID = "pump1"


def free_address() -> str:
    """An address that nobody listens at."""
    return f"127.0.0.1:{free_ports(1)[0]}"


@dataclass(slots=True)
class RunningPump:
    """A Pump that runs."""

    pump: Pump
    playground: Playground
    address: str
    task: asyncio.Task[None]
    channel: Any

    @property
    def stub(self) -> Any:
        """A client."""
        return pump_pb2_grpc.PumpStub(self.channel)

    async def write(self, payload: bytes, cluster_id: int = 0) -> None:
        """WriteBinlog. Raises AioRpcError."""
        request = pump_pb2.WriteBinlogReq(clusterID=cluster_id or self.pump.cluster_id, payload=payload)
        assert (await self.stub.WriteBinlog(request, timeout=120)).errmsg == ""

    async def pull(self, count: int, after: int = 0) -> list[Any]:
        """The first answers of PullBinlogs. Raises AioRpcError."""
        request = pump_pb2.PullBinlogReq(clusterID=self.pump.cluster_id, startFrom=pump_pb2.Pos(offset=after))
        found: list[Any] = []
        call = self.stub.PullBinlogs(request, timeout=120)
        async for answer in call:
            found.append(answer.entity)
            if len(found) == count:
                break
        call.cancel()
        return found

    async def http(self, method: str, path: str, context: ssl.SSLContext | None = None, named: str = "") -> tuple[int, Any]:
        """Status and body, which is an object where it is JSON."""
        host, _, port = self.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname="127.0.0.1" if context else None)
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: {named or self.address}\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        with suppress(ValueError):
            return int(head.split()[1]), json.loads(body)
        return int(head.split()[1]), body.decode()

    def states(self) -> list[NodeState]:
        """The states that its entry has had, each once in a row."""
        key = NodeKind.PUMP.key(NODE_ID).encode()
        found: list[NodeState] = []
        for event in self.playground.etcd.since(0, key, b""):
            state = read_node(event.pair.value).state
            if found[-1:] != [state]:
                found.append(state)
        return found

    def drainer(self, node_id: str, host: str, state: NodeState, checkpoint: int = 0) -> None:
        """Put a Drainer into the registry."""
        set_drainer(self.playground, node_id, host, state, checkpoint)

    async def end(self, event: NodeEvent = NodeEvent.PAUSE) -> None:
        """End it as asked. Raises what it ends with."""
        self.pump.ask(event)
        await self.task


def set_drainer(playground: Playground, node_id: str, host: str, state: NodeState, checkpoint: int = 0) -> None:
    """Put a Drainer into the registry."""
    node = Node(node_id, host, state, max_commit_ts=checkpoint)
    playground.etcd.change([(NodeKind.DRAINER.key(node_id).encode(), node.encode(), 0)])


@asynccontextmanager
async def running_pump(
    folder: Path, playground: Playground, *, online: bool = True, credentials: Any = None, **settings: Any
) -> AsyncIterator[RunningPump]:
    """A Pump in a folder; it is ended at the end if it still runs."""
    address = free_address()
    defaults = {"fake_binlog_interval": 0.05, "heartbeat_interval": 0.05, "stop_write_at": 0, "sync_log": False}
    chosen = {"pd_urls": playground.pd_address, "data_dir": str(folder), "node_id": NODE_ID, "addr": address, **defaults, **settings}
    pump = Pump(PumpSettings(**chosen).checked())
    task = asyncio.ensure_future(pump.run())
    channel = grpc.aio.insecure_channel(address) if credentials is None else grpc.aio.secure_channel(address, credentials)
    running = RunningPump(pump, playground, address, task, channel)
    try:
        if online:
            await until(lambda: task.done() or running.states()[-1:] == [NodeState.ONLINE])
        yield running
    finally:
        if not task.done():
            pump.ask(NodeEvent.PAUSE)
            await asyncio.wait({task}, timeout=120)
        await channel.close()
        task.cancel()
