"""A window: rows of a task that wait to be written together, and their division into lanes and transactions. Pure."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tidemill.config.database import Atomicity
from tidemill.kernels.apply.conflicts import deal, groups
from tidemill.kernels.rows.views import RowArray
from tidemill.kernels.sql import SqlRows
from tidemill.protocols.sql.literals import SqlTable
from tidemill.protocols.sql.missed import Statement
from tidemill.sinks.mysql.merge import Change
from tidemill.sinks.mysql.statements import Limits, TableStatements

LANE_ROWS = 64
"""Fewer rows than this for each lane are not worth another one."""

_UNIT = np.uint64(1 << 63)


class Window:
    """Rows in the order in which they came, as SQL. `units`: what of an upstream transaction stays together. With `GLOBAL` rows come in
    the order of their commits, over all tables."""

    def __init__(self, units: Atomicity = Atomicity.NONE) -> None:
        self._kept_whole = units
        self.changes: list[Change] = []
        self.tables: list[SqlTable] = []
        self.bytes = 0
        self._commits: list[npt.NDArray[np.uint64]] = []
        self._units: list[npt.NDArray[np.uint64]] = []
        self._conflicts: list[npt.NDArray[np.uint64]] = []

    def __len__(self) -> int:
        return len(self.changes)

    def add(self, messages: SqlRows) -> None:
        """Copy a chunk."""
        rows = messages.rows
        keys, values = _texts(messages, "key"), _texts(messages, "value")
        self.changes += map(Change, rows["kind"].tolist(), keys, values)
        self.tables += [messages.tables[number] for number in rows["table"].tolist()]
        self.bytes += messages.bytes
        self._commits.append(rows["commit_ts"].astype(np.uint64))
        self._conflicts.append(messages.conflicts)
        if self._kept_whole is not Atomicity.NONE:
            self._units.append(self._units_of(rows))

    def _units_of(self, rows: RowArray) -> npt.NDArray[np.uint64]:
        """Return a number for each row that is the same within a unit. The rows of an initial load are a unit each: all have one ts."""
        commits, starts = rows["commit_ts"].astype(np.uint64), rows["start_ts"].astype(np.uint64)
        units = commits if self._kept_whole is Atomicity.GLOBAL else starts * np.uint64(65_537) + rows["table"].astype(np.uint64)
        loaded = np.arange(len(self) - len(rows), len(self), dtype=np.uint64)
        return _UNIT | np.where(is_loaded(rows), loaded, units)

    @property
    def last_commit_ts(self) -> int:
        """The highest commit_ts."""
        return max(int(one.max()) for one in self._commits)

    def lanes(self, most: int) -> list[Lane]:
        """Divide the rows among at most `most` lanes, which may be written at the same time."""
        count = max(1, min(most, -(-len(self) // LANE_ROWS)))
        commits = np.concatenate(self._commits)
        units = np.concatenate(self._units) if self._units else None
        if count == 1:
            return [Lane(self, np.arange(len(self)), commits, units)]
        width = max(one.shape[1] for one in self._conflicts)
        conflicts = np.concatenate([np.pad(one, ((0, 0), (0, width - one.shape[1]))) for one in self._conflicts])
        if units is not None:
            conflicts = np.column_stack([conflicts, units])
        return [Lane(self, rows, commits, units) for rows in deal(groups(conflicts), count)]

    def serial(self, after_ts: int) -> Lane:
        """Return the rows above a ts, to be written one after the other."""
        commits = np.concatenate(self._commits)
        units = np.concatenate(self._units) if self._units else None
        return Lane(self, np.flatnonzero(commits > np.uint64(after_ts)), commits, units)


def is_loaded(rows: RowArray) -> npt.NDArray[np.bool_]:
    """Return which rows were read from a table and not written by a transaction: both of their ts are that of the reading."""
    loaded: npt.NDArray[np.bool_] = rows["start_ts"] == rows["commit_ts"]
    return loaded


def _texts(messages: SqlRows, name: str) -> list[bytes]:
    """Return copies of the keys or values. They mostly lie in one buffer, which is copied at once: a slice costs less than a copy."""
    begins, sizes = messages.table[name], messages.table[f"{name}_len"]
    low, high = int(begins.min()), int((begins + sizes.astype(np.uint64)).max())
    whole = (one for one in messages.buffers if isinstance(one, np.ndarray))
    if any(one.ctypes.data <= low and high <= one.ctypes.data + one.nbytes for one in whole):
        data = ctypes.string_at(low, high - low)
        places = (begins - np.uint64(low)).astype(np.int64)
        return [data[begin:end] for begin, end in zip(places.tolist(), (places + sizes).tolist(), strict=True)]
    return [ctypes.string_at(begin, size) for begin, size in zip(begins.tolist(), sizes.tolist(), strict=True)]


class Lane:
    """The rows of one lane, in order."""

    def __init__(
        self, window: Window, rows: npt.NDArray[np.intp], commits: npt.NDArray[np.uint64], units: npt.NDArray[np.uint64] | None
    ) -> None:
        self._window, self._rows = window, rows
        self._commits = commits[rows]
        self._units = units[rows] if units is not None else None

    def transactions(self, rows: int) -> Iterator[Transaction]:
        """Yield transactions of about `rows` rows; a unit is whole, however many rows it has."""
        ends = np.arange(rows, len(self._rows) + rows, rows).clip(max=len(self._rows))
        if not len(self._rows):
            return
        if self._units is not None:
            ends = _whole_units(self._units, rows)
        begin = 0
        for end in ends.tolist():
            picked = self._rows[begin:end].tolist()
            window = self._window
            yield Transaction(
                [window.tables[at] for at in picked],
                [window.changes[at] for at in picked],
                int(self._commits[begin:end].min()),
                self._reached(end - 1),
            )
            begin = end

    def _reached(self, row: int) -> int:
        """Return the ts that has no row behind this one, 0 if that is not known."""
        commit = self._commits[row]
        return int(commit) if self._units is not None and self._units[row] == _UNIT | commit else 0


def _whole_units(units: npt.NDArray[np.uint64], rows: int) -> npt.NDArray[np.int64]:
    """Return where transactions end: after `rows` rows or more, where no unit has rows on both sides."""
    _, place = np.unique(units, return_inverse=True)
    last = np.zeros(int(place.max()) + 1, np.int64)
    last[place] = np.arange(len(units))
    closed = np.flatnonzero(np.maximum.accumulate(last[place]) == np.arange(len(units))) + 1
    ends: list[int] = []
    for end in closed.tolist():
        if end - (ends[-1] if ends else 0) >= rows or end == len(units):
            ends.append(end)
    return np.array(ends, np.int64)


class Transaction:
    """What one transaction downstream writes. `least_ts`: its lowest commit_ts. `reached_ts`: where whole transactions upstream come one
    after the other, the commit_ts of the last; else 0."""

    def __init__(self, tables: Sequence[SqlTable], changes: Sequence[Change], least_ts: int, reached_ts: int) -> None:
        self._by_table: dict[int, tuple[SqlTable, list[Change]]] = {}
        for table, change in zip(tables, changes, strict=True):
            self._by_table.setdefault(id(table), (table, []))[1].append(change)
        self.least_ts, self.reached_ts = least_ts, reached_ts

    @property
    def tables(self) -> list[SqlTable]:
        """The tables that it writes."""
        return [table for table, _ in self._by_table.values()]

    def statements(self, texts: dict[SqlTable, TableStatements], limits: Limits, *, safe: bool) -> Iterator[Statement]:
        """Yield its statements, in order. `texts`: those of the tables, made when they are missing."""
        for table, changes in self._by_table.values():
            made = texts.get(table)
            if made is None:
                made = texts[table] = TableStatements(table)
            yield from made.of_changes(changes, limits, safe=safe)
