"""Which entries go into a batch, plainly: an entry after the other, until the batch is full.

A transaction from which the filters leave no row is not delivered: its TRANSACTIONBEGIN waits for the first row that passes.
`fast_cutting` does the same for whole blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.canal.conversation.fields import Fields
from tidemill.canal.conversation.filters import Kinds, TableFilter
from tidemill.canal.conversation.renames import renamed_by
from tidemill.canal.frames import Bytes, item_head
from tidemill.protocols.canal.codes import EntryType, EventType
from tidemill.sinks.canal.store.position import Position, StoredEntry
from tidemill.sinks.canal.store.segment import Block

KIB = 1024
MOST_BYTES = 16 << 20
"""A batch that has so many bytes is full, whatever was asked for."""
MOST_ENTRIES = 1 << 20
AT_A_TIME = 64
"""Entries of a block that are unpacked together: a small batch needs few."""
LAST_INDEX = 1 << 62
"""Behind every entry of its commit_ts."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A client's place in the store: behind an entry. `inside`: the transaction that goes on there has begun for the client."""

    position: Position
    inside: bool = False


def behind(ts: int) -> Position:
    """The position behind all entries with this commit_ts."""
    return Position(ts, LAST_INDEX)


@dataclass(frozen=True, slots=True)
class Selector:
    """What a client gets."""

    tables: TableFilter
    kinds: Kinds
    fields: Fields

    def passes(self, entry: StoredEntry) -> bool:
        """Whether an entry with rows, or of a DDL, is for the client."""
        if not entry.is_ddl:
            return self.tables(entry.schema, entry.table) and self.kinds.rows_pass(entry.event_type)
        if self.kinds.without_ddl:
            return False
        if self.tables(entry.schema, entry.table):
            return True
        return entry.event_type == EventType.RENAME and any(self.tables(*name) for name in renamed_by(entry.data))

    def data(self, entry: StoredEntry) -> Bytes:
        """An entry as the client gets it."""
        if self.fields and entry.rows and self.fields.concern(entry.schema, entry.table):
            return self.fields.cut(entry.schema, entry.table, entry.data)
        return entry.data


@dataclass(frozen=True, slots=True)
class Demand:
    """How much a GET asks for: so many entries, or entries until they have more than so many bytes. A batch of `enough_bytes` or
    `most_entries` is full. `alone`: a DDL is alone in its batch."""

    most_entries: int
    most_bytes: int
    alone: bool = False

    @classmethod
    def of(cls, fetch_size: int, *, items: bool, alone: bool = False) -> Demand:
        """`items`: fetch_size counts entries, not KiB."""
        if items:
            return cls(min(fetch_size, MOST_ENTRIES), MOST_BYTES, alone)
        return cls(MOST_ENTRIES, min(fetch_size * KIB, MOST_BYTES), alone)


@dataclass(frozen=True, slots=True)
class Batch:
    """Entries behind `begin`, as items of MESSAGES in `pieces`. A client that has got them is at `end`, which may lie behind entries that
    are not for it. `size`: bytes of the entries alone. `full`: waiting would not make it longer. `upto`: there is nothing more up to this
    commit_ts; 0: nobody looked."""

    begin: Place
    end: Place
    pieces: tuple[Bytes, ...]
    entries: int
    size: int
    rows: int
    full: bool
    upto: int = 0


class Cutter:
    """Makes one batch of entries in the store's order."""

    def __init__(self, selector: Selector, demand: Demand, begin: Place) -> None:
        self._selector, self._demand, self._begin = selector, demand, begin
        self._inside = begin.inside
        self._held: StoredEntry | None = None
        self._end = begin
        self._pieces: list[Bytes] = []
        self._entries = self._size = self._rows = 0
        self._closed = False
        self.seen = begin.position
        """The last entry that was looked at."""
        self.upto = 0
        """The commit_ts up to which there is nothing behind it."""

    @property
    def over(self) -> bool:
        """Nothing more fits."""
        return self._closed or self._entries >= self._demand.most_entries or self._size > self._demand.most_bytes

    @property
    def full(self) -> bool:
        """The batch has as much as was asked for."""
        return self._entries > 0 and (self.over or self._size >= self._demand.most_bytes)

    def batch(self) -> Batch:
        """The batch so far."""
        return Batch(self._begin, self._end, tuple(self._pieces), self._entries, self._size, self._rows, self.full, self.upto)

    def feed(self, block: Block, first: int) -> None:
        """Take the entries of a block, from this number on, until the batch is over."""
        while first < len(block) and not self.over:
            for entry in block.entries(first, min(first + AT_A_TIME, len(block))):
                if self.over or not self._look(entry):
                    return
                self.seen = entry.position
            first += AT_A_TIME

    def reach(self, ts: int) -> None:
        """All that lies at or below this commit_ts was fed, and no transaction goes on behind it."""
        self.upto = ts
        if not self.over:
            self._end = Place(max(self._end.position, behind(ts)))

    def _look(self, entry: StoredEntry) -> bool:
        """Whether an entry was taken or passed over; else it is for the next batch."""
        if entry.kind == EntryType.TRANSACTIONBEGIN:
            self._held, self._inside = entry, False
        elif entry.kind == EntryType.TRANSACTIONEND:
            self._finish(entry)
        elif self._selector.passes(entry):
            return self._take(entry)
        elif self._held is None:
            self._end = Place(entry.position, self._inside)
        return True

    def _finish(self, entry: StoredEntry) -> None:
        if self._inside and not self._selector.kinds.without_boundaries:
            self._add(entry)
        self._held, self._inside = None, False
        self._end = Place(entry.position)

    def _take(self, entry: StoredEntry) -> bool:
        """Whether an entry that is for the client went in."""
        if entry.is_ddl and self._demand.alone:
            self._closed = True
            if self._entries:
                return False
        if self._held is not None and not entry.is_ddl:
            begin, self._held = self._held, None
            self._inside = True
            if not self._selector.kinds.without_boundaries:
                self._add(begin)
                self._end = Place(begin.position, True)
                if self.over:
                    return False
        elif not entry.is_ddl:
            self._inside = True
        self._add(entry)
        self._end = Place(entry.position, self._inside)
        return True

    def _add(self, entry: StoredEntry) -> None:
        data = self._selector.data(entry)
        self._pieces += [item_head(len(data)), data]
        self._entries += 1
        self._size += len(data)
        self._rows += entry.rows
