"""The Pump of `bench_binlog`: a process of its own that has its answers ready and sends them as fast as they are taken.

It speaks as much HTTP/2 as that needs, with frames of 16 KiB as Go's gRPC sends them, and keeps to the reader's flow control. Beside it a
playground's PD, in whose registry it stands.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

import hpack
import numpy as np

from tidemill.binlog.messages import Binlog, BinlogType, MutationType, Prewritten, TableMutation, fake
from tidemill.binlog.nodes import Node, NodeKind, NodeState
from tidemill.binlog.registry.client import Registry
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.playground.server import Playground
from tidemill.tidb.codec import encode_uvarint, encode_varint
from tidemill.tidb.datums import Datum, DatumFlag, encode_datum
from tidemill.wire import pump_pb2

TABLE = "CREATE TABLE bench.t (id BIGINT PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL)"
FRAME = 16 << 10
HEADERS = hpack.Encoder().encode([(":status", "200"), ("content-type", "application/grpc")])
PREFACE = 24
FIRST_WINDOW = 65_535
PART = 4 << 20
ROW_LENGTH = 200
HANDLE_AT, FIRST_HANDLE = 1, 1 << 21  # its zig-zag varint has four bytes up to 2^27


def pair(column: int, datum: bytes) -> bytes:
    return bytes([DatumFlag.VARINT]) + encode_varint(column) + datum


def row(number: int) -> bytes:
    """An inserted row: four columns, about 175 bytes."""
    handle = bytes([DatumFlag.VARINT]) + encode_varint(number)
    k = pair(2, bytes([DatumFlag.VARINT]) + encode_varint(number % 1000))
    texts = (encode_datum(Datum(DatumFlag.COMPACT_BYTES, text)) for text in (b"c%0100d" % number, b"p%044d" % number))
    return handle + k + b"".join(pair(3 + place, text) for place, text in enumerate(texts))


def answer(binlog: Binlog) -> bytes:
    """The gRPC message of a binlog."""
    message = pump_pb2.PullBinlogResp(
        entity=pump_pb2.Entity(payload=binlog.encode(), meta=pump_pb2.Meta(startTs=binlog.start_ts, commitTs=binlog.commit_ts))
    ).SerializeToString()
    return struct.pack(">BI", 0, len(message)) + message


def single_rows(table_id: int, base: int, begin: int, end: int) -> bytes:
    """Transactions of one row, and the fake binlog after them."""
    found = []
    for number in range(begin, end):
        ts = base + 2 * number + 2
        mutation = TableMutation(table_id, inserted=(row(number + 1),), sequence=(MutationType.INSERT,))
        found.append(answer(Binlog(BinlogType.COMMIT, ts - 1, ts, b"t_key_of_the_row", Prewritten(30, (mutation,)).encode())))
    return b"".join(found) + answer(fake(base + 2 * end + 1))


def large(table_id: int, base: int, size: int) -> Iterator[bytes]:
    """The gRPC message of one transaction of about `size` bytes, of rows of 200 bytes, in parts; and the fake binlog after it."""
    template = bytearray(row(FIRST_HANDLE))
    text = pair(4, encode_datum(Datum(DatumFlag.COMPACT_BYTES, b"p" * (45 + ROW_LENGTH - len(template)))))
    template[-len(pair(4, encode_datum(Datum(DatumFlag.COMPACT_BYTES, b"p%044d" % 0)))) :] = text
    head = b"\x12" + encode_uvarint(len(template))
    entry = len(head) + len(template)
    count = size // (entry + 2)
    table = b"\x08" + encode_uvarint(table_id)
    mutation = len(table) + count * (entry + 2)
    value_head = b"\x08\x1e\x12" + encode_uvarint(mutation) + table
    value = len(value_head) + mutation - len(table)
    before = b"\x08\x01\x10" + encode_uvarint(base + 1) + b"\x18" + encode_uvarint(base + 2) + b"\x22\x01k\x2a" + encode_uvarint(value)
    payload = len(before) + value
    entity = b"\x12" + encode_uvarint(payload)
    whole = b"\x0a" + encode_uvarint(len(entity) + payload) + entity
    yield struct.pack(">BI", 0, len(whole) + payload) + whole + before + value_head
    step = PART // entry
    for at in range(0, count, step):
        number = min(step, count - at)
        rows = np.empty((number, entry), np.uint8)
        rows[:] = np.frombuffer(head + template, np.uint8)
        zigzag = (np.arange(at, at + number, dtype=np.uint32) + FIRST_HANDLE) * 2
        for byte in range(4):
            rows[:, len(head) + HANDLE_AT + byte] = (zigzag >> (7 * byte)) & 0x7F | (0x80 if byte < 3 else 0)
        yield rows.tobytes()
    yield b"\x38\x00" * count
    yield answer(fake(base + 10))


@dataclass
class Stream:
    """One Drainer's connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    window: int = FIRST_WINDOW
    own_window: int = FIRST_WINDOW

    async def run(self, given: asyncio.Queue[Iterator[bytes]]) -> None:
        """Answer its call with what is given."""
        await self.reader.readexactly(PREFACE)
        self.writer.write(frame(4, 0, 0, b""))
        self.moved = asyncio.Event()
        listening = asyncio.ensure_future(self._listen())
        try:
            await self.called.wait()
            self.writer.write(frame(1, 4, 1, HEADERS))
            while True:
                for part in await given.get():
                    await self._send(memoryview(part))
        finally:
            listening.cancel()

    def __post_init__(self) -> None:
        self.called = asyncio.Event()

    async def _send(self, data: memoryview) -> None:
        at = 0
        while at < len(data):
            room = min(self.window, self.own_window, 64 * FRAME)
            if room <= 0:
                self.moved.clear()
                await self.moved.wait()
                continue
            end = min(at + room, len(data))
            frames: list[bytes | memoryview] = []
            for begin in range(at, end, FRAME):
                part = data[begin : min(begin + FRAME, end)]
                frames += [struct.pack(">IBI", len(part) << 8, 0, 1), part]
            self.writer.write(b"".join(frames))
            self.window -= end - at
            self.own_window -= end - at
            at = end
            await self.writer.drain()

    async def _listen(self) -> None:
        while True:
            head = await self.reader.readexactly(9)
            length, kind, flags, stream = int.from_bytes(head[:3], "big"), head[3], head[4], int.from_bytes(head[5:], "big")
            payload = await self.reader.readexactly(length)
            if kind == 0:
                self.called.set()
            elif kind == 4 and not flags & 1:
                for key, value in struct.iter_unpack(">HI", payload):
                    if key == 4:
                        self.own_window += value - FIRST_WINDOW
                self.writer.write(frame(4, 1, 0, b""))
            elif kind == 6 and not flags & 1:
                self.writer.write(frame(6, 1, 0, payload))
            elif kind == 8:
                if stream:
                    self.own_window += int.from_bytes(payload, "big")
                else:
                    self.window += int.from_bytes(payload, "big")
                self.moved.set()


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


async def serve(pipe: Connection) -> None:
    """Do what the pipe says: ("rows", warm, count) and ("large", 0, size) make a Pump that is told twice to send; ("end", 0, 0)."""
    loop = asyncio.get_running_loop()
    async with Playground(1) as playground:
        playground.execute("CREATE DATABASE bench")
        playground.execute(TABLE)
        (table,) = [t for t in playground.database.catalog.tables.values() if t.name == "t"]
        pd = await PdClient.connect(playground.pd_address)
        given: asyncio.Queue[Iterator[bytes]] = asyncio.Queue()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await Stream(reader, writer).run(given)
            except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await Registry(pd).put(NodeKind.PUMP, Node("pump", host, NodeState.ONLINE))
        base = await pd.tso()
        pipe.send((playground.pd_address, host, base))
        while True:
            order, begin, end = await loop.run_in_executor(None, pipe.recv)
            if order == "end":
                break
            if order == "large":
                parts, last = await asyncio.to_thread(list, large(table.model.id, base, end)), base + 10
            else:
                parts, last = [await asyncio.to_thread(single_rows, table.model.id, base, begin, end)], base + 2 * end + 1
            size = sum(map(len, parts))
            pipe.send((last, size))
            await loop.run_in_executor(None, pipe.recv)  # "go"
            given.put_nowait(iter(parts))
            pipe.send(time.monotonic())
        server.close()
        await pd.close()


def main(pipe: Connection) -> None:
    """Until told to end."""
    asyncio.run(serve(pipe))
