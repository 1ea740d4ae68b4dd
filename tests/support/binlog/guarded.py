"""The kernels of binlogs on broken bytes, between pages without access: one family of `tests.support.rows.guarded_fuzz`."""

from __future__ import annotations

import random

import numpy as np

from tests.support.binlog.blocks import message
from tests.support.binlog.random_transactions import random_tables, random_transactions
from tests.support.binlog.read_logs import LAYOUT
from tests.support.rows.guard_pages import Guarded, guarded_array
from tests.support.rows.mutation import mutated
from tests.support.rows.random_rows import maximal_varint
from tidemill.binlog.blocks import Binlogs, read_messages
from tidemill.binlog.drainer.rows.batching import Array, Batcher, KnownTable, KnownTables, Stop
from tidemill.errors import MalformedMessage
from tidemill.kernels.address import address
from tidemill.kernels.binlog import layout as L
from tidemill.kernels.binlog.heads import heads

SMALL = 3
"""Changes that there is room for at first."""


def hostile(rng: random.Random, data: bytes, changed: float = 0.7, lengthened: float = 0.6, cut: float = 0.1) -> bytes:
    """Bytes with some of them changed, or with a length that no field has, or without their end: how often each is."""
    made = bytearray(mutated(rng, data) if rng.random() < changed else data)
    if rng.random() < lengthened:
        at = rng.randrange(len(made) + 1)
        made[at : at + rng.randrange(3)] = maximal_varint(rng)
    return bytes(made[: rng.randrange(len(made) + 1)] if rng.random() < cut else made)


class Room:
    """Room for changes that ends at guards, in which little fits at first."""

    def __init__(self, changes: int = SMALL) -> None:
        self._changes = changes
        self.steps: Array = guarded_array(L.S_SIZE * changes).view(L.STEP)
        self.order: Array = guarded_array(16 * changes).view(np.int64)
        self.keys: Array = guarded_array(40 * changes)

    def grow(self) -> None:
        """Twice as much room."""
        self.__init__(2 * self._changes)  # type: ignore[misc]


def read_all(batcher: Batcher, binlogs: Binlogs, tables: KnownTables) -> None:
    at = 0
    while at < len(binlogs):
        found = batcher.read(binlogs, at, tables, LAYOUT)
        for _, batch in found.changes:
            batch.validate(full=True)
        at = found.end + (found.stop is not None)
        if found.stop is Stop.UNKNOWN_TABLE:
            tables.add(KnownTable.left_out(found.table_id))


def fuzz_binlog(rng: random.Random, rounds: int) -> None:
    """Messages, and the rows in messages that are whole, whose last byte is the last that may be read."""
    data = Guarded(1 << 20)
    for number in range(rounds):
        print(number, flush=True)
        infos = random_tables(rng, 3)
        tables = KnownTables()
        for info in infos:
            tables.add(KnownTable.of(info.id, info))
        batcher = Batcher()
        batcher._room = Room()  # type: ignore[assignment]
        batcher._seen = guarded_array(16 * L.SEEN).view(np.int64)
        batcher._words = guarded_array(8 * L.W_WORDS).view(np.int64)
        for binlog in random_transactions(rng, infos, 40):
            whole = message(binlog.encode())
            broken = hostile(rng, whole)
            data.put(broken, last=True)
            out, end = guarded_array(L.H_SIZE), np.array([len(broken)])
            if heads(address(data.tail(len(broken))), address(end), 1, address(out)) == 1:
                read_all(batcher, Binlogs(out.view(L.HEAD)), tables)
            value = hostile(rng, binlog.prewrite_value)
            data.put(value, last=True)
            head: Array = np.zeros(1, L.HEAD)
            head["rows"], head["rows_len"], head["commit_ts"] = address(data.tail(len(value))), len(value), binlog.commit_ts
            read_all(batcher, Binlogs(head), tables)
            try:
                read_messages(np.frombuffer(broken, np.uint8), end)
            except MalformedMessage:
                continue
