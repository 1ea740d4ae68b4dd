"""Pump's kernels on broken bytes, between pages without access: one family of `tests.support.rows.guarded_fuzz`."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from functools import partial
from typing import Any

import hpack
import numpy as np

from tests.support.binlog import guarded
from tests.support.rows.guard_pages import Guarded, guarded_array
from tidemill.binlog.http2 import frames as F
from tidemill.binlog.messages import Binlog, BinlogType, fake
from tidemill.binlog.valuelog import frame
from tidemill.kernels.address import address
from tidemill.kernels.pump import layout as L
from tidemill.kernels.pump.intake import intake
from tidemill.kernels.pump.pull import pull
from tidemill.wire import pump_pb2

CLUSTER = 7
KEPT = 1 << 13
"""Bytes that there is room for of Prewrites: several times less than come."""
FIELDS = [
    (b":method", b"POST"), (b":scheme", b"http"), (b":path", L.WRITE_PATH), (b":authority", b"pump"), (b"te", b"trailers"),
    (b"content-type", b"application/grpc"), (b"grpc-encoding", b"identity"),
]  # fmt: skip


hostile = partial(guarded.hostile, changed=0.6, lengthened=0.4, cut=0.2)


def binlogs(rng: random.Random, count: int) -> Iterator[Binlog]:
    """Prewrites, Commits and Rollbacks of some transactions, in any order."""
    for _ in range(count):
        start = rng.randrange(1, 9)
        value = rng.randbytes(rng.choice((0, 1, 30, 400, 3000)))
        yield rng.choice(
            (
                Binlog(BinlogType.PREWRITE, start, 0, b"key", value, b"", 3, 4),
                Binlog(BinlogType.PREWRITE, start, 0, b"", b"", value, 3, 4),
                Binlog(BinlogType.COMMIT, start, start + 1, b"key"),
                Binlog(BinlogType.ROLLBACK, start, 0, b"key"),
                fake(start),
            )
        )


def call(rng: random.Random, encoder: hpack.Encoder, stream: int, binlog: bytes) -> bytes:
    """The frames of a call of WriteBinlog."""
    request = pump_pb2.WriteBinlogReq(clusterID=CLUSTER, payload=binlog).SerializeToString()
    block = encoder.encode(FIELDS, huffman=rng.random() < 0.5)
    head, body = bytes(block), b"\0" + struct.pack(">I", len(request)) + request
    return b"".join(
        struct.pack(">I", len(part))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + part
        for kind, flags, part in ((1, 4, head), (0, 1, body))
    )


class Taking:
    """A connection, and a group into which little fits."""

    def __init__(self, most: int = 4, size: int = 2048) -> None:
        self.state: Any = guarded_array(8 * L.C_WORDS).view(np.int64)
        self.state[:] = 0
        self.state[[L.C_MOST_OPEN, L.T_MOST]] = 100, L.TABLE_BYTES
        self._data, self._marks = guarded_array(size), guarded_array(L.MARK_BYTES * most)
        self.group: Any = guarded_array(8 * L.G_WORDS).view(np.int64)
        self.group[:] = address(self._data), size, address(self._marks), most, 0, 0, 0, 0
        self.policy: Any = guarded_array(8 * L.P_WORDS).view(np.int64)
        self.policy[:] = CLUSTER, 1
        self.scratch = guarded_array(2 * L.BLOCK_LIMIT)

    def take(self, data: bytes, room: Guarded) -> None:
        """Take frames as a connection does, until one is not for the kernel."""
        room.put(data, last=True)
        base, at = address(room.tail(len(data))), 0
        while True:
            at += intake(
                L.TABLES, address(self.state), base + at, len(data) - at, address(self.group), address(self.policy), 1,
                F.LEAST_FRAME, address(self.scratch),
            )  # fmt: skip
            outcome = int(self.state[L.C_OUTCOME])
            if outcome == L.NO_ROOM and self.group[L.G_COUNT]:
                self.group[[L.G_SIZE, L.G_COUNT]] = 0
            elif outcome != L.OPENED:
                return


class Giving:
    """A stream of PullBinlogs: records of a window, for which the output has little room."""

    def __init__(self) -> None:
        self.state: Any = guarded_array(8 * L.U_WORDS).view(np.int64)
        self.state[:] = 0
        self._table, self._room, self._out = guarded_array(24 * L.KEPT_SLOTS), guarded_array(KEPT), guarded_array(5000)
        self._table[:] = 0
        self.state[[L.K_TABLE, L.K_ROOM, L.K_CAP]] = address(self._table), address(self._room), KEPT
        self.state[[L.O_DATA, L.O_CAP]] = address(self._out), len(self._out)
        self.scratch = guarded_array(32)

    def give(self, window: Any, start: int, pointers: bytes) -> None:
        """Read the records of pointers, whatever becomes of each."""
        count = len(pointers) // L.POINTER_BYTES
        places = guarded_array(len(pointers))
        places[:] = np.frombuffer(pointers, np.uint8)
        self.state[[L.W_DATA, L.W_FILE, L.W_START, L.W_SIZE]] = address(window), 0, start, len(window)
        at = 0
        while at < count:
            at += pull(L.TABLES, address(self.state), address(places) + 12 * at, count - at, address(self.scratch))
            if self.state[L.U_OUTCOME] == L.OUT_FULL and self.state[L.O_COUNT]:
                self.state[[L.O_SIZE, L.O_COUNT]] = 0
            else:
                at += 1


def fuzz_pump(rng: random.Random, rounds: int) -> None:
    """Frames of connections, and records of the value log, whose last byte is the last that may be read."""
    room = Guarded(1 << 20)
    for number in range(rounds):
        print(number, flush=True)
        encoder, taking, giving = hpack.Encoder(), Taking(), Giving()
        for stream in range(1, 40, 2):
            sent = b"".join(call(rng, encoder, 2 * n + stream, one.encode()) for n, one in enumerate(binlogs(rng, rng.choice((1, 1, 3)))))
            taking.take(hostile(rng, sent) if rng.random() < 0.5 else sent, room)
        records = [frame(hostile(rng, one.encode()) if rng.random() < 0.3 else one.encode()) for one in binlogs(rng, 60)]
        data = b"".join(records)
        if rng.random() < 0.3:
            data = hostile(rng, data)
        offsets = np.cumsum([0, *map(len, records[:-1])]).tolist()
        offsets += [rng.randrange(-30, len(data) + 30) for _ in range(20)]
        offsets += [-(1 << 63), (1 << 63) - 1]
        room.put(data, last=True)
        start = rng.choice((0, 0, 5, -(1 << 62)))
        pointers = b"".join(struct.pack("<Iq", rng.choice((0, 0, 0, 0, 1)), one) for one in offsets)
        giving.give(room.tail(len(data)), start, pointers)
