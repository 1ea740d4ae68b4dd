"""What a Pump holds for clients that end nothing: connections, requests that have begun, peers that do not read. In raw frames."""

from __future__ import annotations

import asyncio
from pathlib import Path

import hpack
import pytest

from tests.support.binlog.binlogs import commit, prewrite
from tests.support.binlog.pumps import RunningPump, running_pump
from tidemill.binlog.http2 import frames as F
from tidemill.binlog.http2.frames import Code, Frame
from tidemill.binlog.nodes import NodeState
from tidemill.binlog.pump import port
from tidemill.binlog.pump.serving import http2
from tidemill.playground.server import Playground
from tidemill.wire import pump_pb2

FIELDS = [(":method", "POST"), (":scheme", "http"), (":path", "/binlog.Pump/WriteBinlog"), (":authority", "p"), ("te", "trailers")]


class Raw:
    """A connection whose frames a test writes itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.encoder = reader, writer, hpack.Encoder()

    @classmethod
    async def open(cls, running: RunningPump, begun: bytes = F.PREFACE + F.settings({})) -> Raw:
        host, _, number = running.address.rpartition(":")
        made = cls(*await asyncio.open_connection(host, int(number)))
        made.writer.write(begun)
        return made

    def headers(self, stream: int) -> bytes:
        return F.frame(Frame.HEADERS, F.END_HEADERS, stream, self.encoder.encode([*FIELDS, ("content-type", "application/grpc")]))

    def unfinished(self, stream: int, size: int) -> bytes:
        """A call of which the last byte never comes."""
        data = F.prefixed(bytes(size + 1))[:-1]
        return self.headers(stream) + b"".join(F.frame(Frame.DATA, 0, stream, data[at : at + 16384]) for at in range(0, len(data), 16384))

    async def until(self, wanted: bytes) -> bytes:
        """What the Pump sends, up to these bytes. Raises IncompleteReadError where it ends before."""
        async with asyncio.timeout(60):
            return await self.reader.readuntil(wanted)

    async def end(self) -> bytes:
        """What the Pump sends before it ends the connection."""
        async with asyncio.timeout(60):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""


async def write(raw: Raw, running: RunningPump, stream: int, payload: bytes) -> None:
    """WriteBinlog, with its answer."""
    asked = pump_pb2.WriteBinlogReq(clusterID=running.pump.cluster_id, payload=payload).SerializeToString()
    raw.writer.write(raw.headers(stream) + F.frame(Frame.DATA, F.END_STREAM, stream, F.prefixed(asked)))
    await raw.until(F.frame(Frame.DATA, 0, stream, F.prefixed(b"")))


class Transaction:
    """A client that works: its prewrite is written before strangers come, its commit at the end."""

    def __init__(self, raw: Raw, running: RunningPump, playground: Playground) -> None:
        self.raw, self.running, self.oracle = raw, running, playground.cluster.oracle
        self.start_ts = self.oracle.next()

    @classmethod
    async def prewritten(cls, running: RunningPump, playground: Playground) -> Transaction:
        made = cls(await Raw.open(running), running, playground)
        await write(made.raw, running, 1, prewrite(made.start_ts))
        return made

    async def commit(self) -> None:
        await write(self.raw, self.running, 5, commit(self.start_ts, self.oracle.next()))


def test_what_never_ends_is_ended_and_a_client_that_works_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "EXPIRY_S", 0.2)
    monkeypatch.setattr(http2, "STRANGER_S", 0.5)

    async def run() -> None:
        async with Playground() as playground, running_pump(tmp_path, playground, fake_binlog_interval=60.0) as running:
            good = await Transaction.prewritten(running, playground)
            silent, half = await Raw.open(running), await Raw.open(running, F.PREFACE)
            slow = await Raw.open(running)
            slow.writer.write(slow.unfinished(1, 60_000))
            assert f"{int(F.Status.DEADLINE_EXCEEDED)}".encode() in await slow.until(F.rst_stream(1, Code.NO_ERROR))
            for stranger in (silent, half, slow):
                assert await stranger.end()
            await good.commit()

    asyncio.run(run())


def test_a_name_that_was_made_to_lead_here_reads_and_changes_nothing(tmp_path: Path) -> None:
    """DNS rebinding: to a browser the page of another site is of one origin with what answers under its name."""

    async def run() -> None:
        async with Playground() as playground, running_pump(tmp_path, playground, fake_binlog_interval=60.0) as running:
            for method, path in (("GET", "/status"), ("PUT", "/state/pump1/close")):
                assert (await running.http(method, path, named="evil.example:8250"))[0] == 403
            assert (await running.http("GET", "/status", named="localhost:8250"))[0] == 200
            assert running.pump.state is NodeState.ONLINE

    asyncio.run(run())


def test_too_many_connections_close_the_oldest_stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "MOST_CONNECTIONS", 3)

    async def run() -> None:
        async with Playground() as playground, running_pump(tmp_path, playground, fake_binlog_interval=60.0) as running:
            good = await Transaction.prewritten(running, playground)
            strangers = [await Raw.open(running) for _ in range(5)]
            for gone in strangers[:3]:
                await gone.end()
            await good.commit()
            strangers[-1].writer.write(F.frame(Frame.PING, 0, 0, b"12345678"))
            await strangers[-1].until(F.frame(Frame.PING, F.ACK, 0, b"12345678"))

    asyncio.run(run())


def test_unfinished_requests_of_all_connections_have_one_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "UNFINISHED_BYTES", 200_000)

    async def run() -> None:
        async with Playground() as playground, running_pump(tmp_path, playground, fake_binlog_interval=60.0) as running:
            good = await Transaction.prewritten(running, playground)
            good.raw.writer.write(good.raw.unfinished(3, 50_000))
            hostile = await Raw.open(running)
            for n in range(4):
                hostile.writer.write(hostile.unfinished(2 * n + 1, 50_000))
            assert b"take too much memory" in await hostile.end()
            await good.commit()

    asyncio.run(run())
