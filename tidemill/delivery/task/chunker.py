"""Cuts the merged rows into chunks: some thousand rows in order, cut between transactions.

A transaction that is larger than a chunk is read three times: first its deletes, then its updates, then its inserts. So the order inside
the transaction holds across chunks, and memory does not grow with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidemill.delivery.task.claim import Routing
from tidemill.delivery.task.reader import Sources
from tidemill.kernels.flow import layout as f
from tidemill.kernels.flow.layout import Stop
from tidemill.kernels.flow.merge import first_origins, merge, transaction_begin, unfinished
from tidemill.records import KIND_DELETE, KIND_INSERT, KIND_UPDATE, ROW

MAX_ROWS = 4096
"""Rows of a chunk. Their records and messages stay in the processor's second-level cache; with 65,536 a row costs half as much again."""
MAX_BYTES = 32 << 20
"""Bytes of raw rows in a chunk: bounds memory where rows are large."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Row records in order; valid until the next chunk is asked for.

    keep: only rows that are, or are split into, this kind count, because the others belong to another pass; 0: all rows count.
    may_split: not 0 if an update may have to be split. hashed: not 0 if a row's target depends on a hash.
    """

    rows: npt.NDArray[np.void]
    keep: int
    may_split: int
    hashed: int


class Chunker:
    """Iterates over the chunks of sources. `owned` has a byte for each target; rows of other targets are left out as soon as possible."""

    def __init__(
        self,
        sources: Sources,
        routing: Routing,
        owned: npt.NDArray[np.uint8],
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
        *,
        whole_transactions: bool = True,
    ) -> None:
        """`whole_transactions`: a chunk ends where a transaction does, and a larger one comes in passes, see `_passes`."""
        self._whole = whole_transactions
        self._sources, self._routing, self._owned = sources, routing, owned
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self._rows = np.zeros(max_rows, ROW)
        self._origins = np.zeros((max_rows, 2), np.int64)
        self._heads = np.zeros(12 * (len(sources) + 1), np.uint8)
        self._state = np.zeros(f.ST_WORDS, np.int64)
        self._only = np.zeros(f.ONLY_WORDS, np.int64)
        self._fixed = (self._heads.ctypes.data, owned.ctypes.data, self._rows.ctypes.data, self._origins.ctypes.data)
        self.rows_seen = 0
        self.rows_dropped = 0

    def __iter__(self) -> Iterator[Chunk]:
        while True:
            n, stop = self._fill()
            if n == 0:
                return
            if self._whole and stop is Stop.FULL and unfinished(len(self._sources), self._sources.address, self._rows.ctypes.data, n):
                begin = transaction_begin(self._rows.ctypes.data, n)
                if begin == 0:
                    yield from self._passes(n)
                    continue
                self._sources.set_back(self._places(begin, n))
                n = begin
            yield self._chunk(n, keep=0)
            if stop is Stop.DONE:
                return

    def _passes(self, n: int) -> Iterator[Chunk]:
        """The transaction that begins with record 0 and does not end within n records: one kind of rows at a time."""
        first = self._rows[0]
        begin = self._places(0, n)
        begin = [at if at >= 0 else source.number for at, source in zip(begin, self._sources.all, strict=True)]
        self._only[:] = 1, int(first["commit_ts"]), int(first["start_ts"]), 0
        kinds = (1 << KIND_DELETE) | (1 << KIND_UPDATE) | (1 << KIND_INSERT)
        for kind in (KIND_DELETE, KIND_UPDATE, KIND_INSERT):
            if not kinds >> kind & 1:
                continue
            self._only[f.ONLY_KINDS] = 1 << kind
            self._sources.set_back(begin)
            kinds = 0
            stop = Stop.FULL
            while stop is Stop.FULL:
                n, stop = self._fill()
                kinds |= int(self._state[f.ST_KINDS])
                if n:
                    yield self._chunk(n, keep=kind)
        self._only[:] = 0

    def _fill(self) -> tuple[int, Stop]:
        """Merge until the chunk is full or nothing is left."""
        state, sources, routing = self._state, self._sources, self._routing
        state[:] = 0
        sources.begin_chunk()
        heads, owned, rows, origins = self._fixed
        n = 0
        while True:
            tables = routing.tables
            n = merge(
                *(len(sources), sources.address, heads, tables.address, tables.mask, routing.rules_address, owned),
                *(rows, origins, n, self._max_rows, self._max_bytes, self._only.ctypes.data, state.ctypes.data),
            )
            stop = Stop(int(state[f.ST_REASON]))
            if stop is Stop.DRY:
                sources.advance(int(state[f.ST_SOURCE]))
            elif stop is Stop.UNKNOWN:
                routing.resolve(int(state[f.ST_ID]))
            else:
                self.rows_seen += int(state[f.ST_SEEN])
                self.rows_dropped += int(state[f.ST_DROPPED])
                return n, stop

    def _places(self, begin: int, n: int) -> list[int]:
        """For each source the number of its first row among records begin … n - 1, -1 if none is."""
        places = np.full(len(self._sources), -1, np.int64)
        first_origins(self._origins.ctypes.data, begin, n, places.ctypes.data)
        return [int(p) for p in places]

    def _chunk(self, n: int, keep: int) -> Chunk:
        state = self._state
        return Chunk(self._rows[:n], keep, int(state[f.ST_MAY_SPLIT]), int(state[f.ST_HASHED]))
