"""Which entries go into a batch, for whole blocks in compiled code. Reference: `cutting.Cutter`, which also leaves out columns."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from tidemill.canal.conversation.cutting import Batch, Cutter, Demand, Place, Selector, behind
from tidemill.canal.conversation.filters import EVENTS, passing_events
from tidemill.canal.frames import Bytes, item_head
from tidemill.kernels.canal.batch_kernel import (
    BYTES,
    CHOSEN,
    CLOSED,
    EARLIER,
    END,
    END_INSIDE,
    ENTRIES,
    HELD,
    MOST_HEAD,
    NONE,
    ROWS,
    STATE,
    cut_block,
    write_entries,
)
from tidemill.kernels.canal.block_kernel import passing
from tidemill.sinks.canal.store.position import Position
from tidemill.sinks.canal.store.segment import Block

LARGE = 4 << 10
"""From this mean size on entries are sent from where they lie; smaller ones are put together first."""


class CutsBlocks(Protocol):
    """Makes one batch of blocks."""

    seen: Position
    upto: int

    @property
    def over(self) -> bool: ...
    def feed(self, block: Block, first: int) -> None: ...
    def reach(self, ts: int) -> None: ...
    def batch(self) -> Batch: ...


def cutter(selector: Selector, demand: Demand, begin: Place) -> CutsBlocks:
    """The cutter for what a client gets."""
    return Cutter(selector, demand, begin) if selector.fields else BlockCutter(selector, demand, begin)


class BlockCutter:
    """See `Cutter`. A block is looked at as a whole, and what is for the client is copied once."""

    def __init__(self, selector: Selector, demand: Demand, begin: Place) -> None:
        self._selector, self._demand, self._begin, self._end = selector, demand, begin, begin
        state = self._state = np.zeros(1, STATE)
        state["most_entries"], state["most_bytes"], state["alone"] = demand.most_entries, demand.most_bytes, demand.alone
        state["boundaries"], state["inside"], state["held"] = not selector.kinds.without_boundaries, begin.inside, NONE
        self._words: npt.NDArray[np.int64] = state.view(np.int64)
        self._events = passing_events(selector.kinds)
        self._held: tuple[Position, bytes] | None = None
        self._pieces: list[Bytes] = []
        self.seen = begin.position
        self.upto = 0

    @property
    def over(self) -> bool:
        """Nothing more fits."""
        words = self._words
        return bool(words[ENTRIES] >= self._demand.most_entries or words[BYTES] > self._demand.most_bytes or words[CLOSED])

    def batch(self) -> Batch:
        """The batch so far."""
        entries, size, rows = (int(self._words[number]) for number in (ENTRIES, BYTES, ROWS))
        full = entries > 0 and (self.over or size >= self._demand.most_bytes)
        return Batch(self._begin, self._end, tuple(self._pieces), entries, size, rows, full, self.upto)

    def feed(self, block: Block, first: int) -> None:
        """Take the entries of a block, from this number on, until the batch is over."""
        words, end = self._words, len(block)
        words[END], words[CHOSEN] = NONE, 0
        if self._held is not None:
            words[HELD] = EARLIER
        numbers, passes = np.empty(end - first + 1, np.int32), self._passes(block)
        looked = int(cut_block(first, end, block.index.ctypes.data, passes.ctypes.data, words.ctypes.data, numbers.ctypes.data))
        self._write(block, numbers[: int(words[CHOSEN])])
        place, inside, held = int(words[END]), bool(words[END_INSIDE]), int(words[HELD])
        if place != NONE:
            self._end = Place(self._position(block, place), inside)
        if held == NONE:
            self._held = None
        elif held != EARLIER:
            self._held = self._position(block, held), bytes(block.data[int(block.offsets[held]) : int(block.offsets[held + 1])])
        if looked > first:
            self.seen = self._position(block, looked - 1)

    def reach(self, ts: int) -> None:
        """All that lies at or below this commit_ts was fed, and no transaction goes on behind it."""
        self.upto = ts
        if not self.over:
            self._end = Place(max(self._end.position, behind(ts)))

    def _position(self, block: Block, number: int) -> Position:
        if number == EARLIER:
            assert self._held is not None
            return self._held[0]
        return Position(int(block.index["commit_ts"][number]), int(block.indexes[number]))

    def _write(self, block: Block, numbers: npt.NDArray[np.int32]) -> None:
        """Add the chosen entries to the batch."""
        if not len(numbers):
            return
        if numbers[0] == EARLIER:
            assert self._held is not None
            data = self._held[1]
            self._pieces += [item_head(len(data)), data]
            numbers = numbers[1:]
        if not len(numbers):
            return
        offsets, data_of = block.offsets, np.frombuffer(block.data, np.uint8)
        size = int((offsets[numbers + 1] - offsets[numbers]).sum())
        if size >= LARGE * len(numbers):
            for begin, end in zip(offsets[numbers].tolist(), offsets[numbers + 1].tolist(), strict=True):
                self._pieces += [item_head(end - begin), block.data[begin:end]]
            return
        out = np.empty(size + MOST_HEAD * len(numbers), np.uint8)
        begin = out.ctypes.data
        done = int(write_entries(len(numbers), numbers.ctypes.data, offsets.ctypes.data, data_of.ctypes.data, begin)) - begin
        self._pieces.append(out.data[:done])

    def _passes(self, block: Block) -> npt.NDArray[np.uint8]:
        """For each entry whether it is for the client, as far as it has rows or is a DDL."""
        tables, found = self._selector.tables.of_list(block.names), np.empty(len(block), np.uint8)
        flags = (tables.ctypes.data, self._events.ctypes.data)
        passing(len(block), block.index.ctypes.data, *flags, EVENTS - 1, found.ctypes.data)
        if block.has_ddls:
            for number in np.flatnonzero(block.index["ddl"]).tolist():
                found[number] = self._selector.passes(block.entry(number))
        return found
