"""Applies event filters in a task: leaves out rows before updates are split and targets are found.

Kinds of rows and transactions are recognised by a row's record alone, updates of given columns by the change kernel. Value expressions are
evaluated row by row, on the columns that they name, for tables that have such expressions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import string_at

import numpy as np
import numpy.typing as npt

from tidemill.errors import MalformedRow, TidemillError
from tidemill.kernels.routing.identity import ColumnChange
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import raw_record
from tidemill.records import KIND_DELETE, KIND_INSERT, KIND_UPDATE
from tidemill.rules.event_filter import RowFilter
from tidemill.rules.expressions import Condition, bind, parse
from tidemill.tidb.rows.pick import ColumnPicker, Picked

Rows = npt.NDArray[np.void]
Kept = npt.NDArray[np.bool_]

_REMEMBERED = 65_536
"""For how many combinations of stored values an expression remembers its result."""


class _Expression:
    """A value expression over the columns that it names. Results are remembered by stored values, because many rows have the same ones."""

    def __init__(self, text: str, program: TableProgram, *, after: bool) -> None:
        self._condition: Condition = bind(parse(text), program.info)
        self._columns = ColumnPicker(program.info, self._condition.columns, program.zone, program.json)
        self._known: dict[Picked, bool] = {}
        self.image, self.size = ("value", "value_len") if after else ("old_value", "old_len")

    def holds(self, key: bytes, image: bytes) -> bool:
        """Whether a row with this image is left out. Raises MalformedRow, or MalformedBytes without a column's name."""
        picked = self._columns.pick(key, image)
        if picked is None:
            return self._condition.holds(self._columns.read(key, image))
        found = self._known.get(picked)
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self._known[picked] = self._condition.holds(self._columns.cells(picked))
        return found


class _Table:
    """The filter of one table in use."""

    def __init__(self, found: RowFilter, program: TableProgram) -> None:
        self.kinds = found.kinds

        def made(texts: Sequence[str], *, after: bool) -> list[_Expression]:
            return [_Expression(text, program, after=after) for text in texts]

        self.expressions: Mapping[int, list[_Expression]] = {
            KIND_INSERT: made(found.insert, after=True),
            KIND_UPDATE: made(found.update_old, after=False) + made(found.update_new, after=True),
            KIND_DELETE: made(found.delete, after=False),
        }
        self.watched = [[program.slots[column] for column in sorted(ids)] for ids in found.unless_changed]


class RowFilters:
    """The filters of the tables in use, by number. `slow_rows`: rows that the plain reference compared instead of the kernel."""

    def __init__(self, filters: Sequence[RowFilter | None], programs: Sequence[TableProgram], ignored_start_ts: frozenset[int]) -> None:
        self._ignored = np.array(sorted(ignored_start_ts), np.uint64)
        self._names = [program.name for program in programs]
        self._tables = {i: _Table(f, programs[i]) for i, f in enumerate(filters) if f is not None}
        layers = max((len(table.watched) for table in self._tables.values()), default=0)
        self._changes = [self._layer(layer, programs) for layer in range(layers)]

    def _layer(self, layer: int, programs: Sequence[TableProgram]) -> tuple[ColumnChange, set[int]]:
        """The n-th rule about changed columns of every table that has n such rules, and the numbers of these tables."""
        having = {i: table.watched[layer] for i, table in self._tables.items() if layer < len(table.watched)}
        return ColumnChange(programs, [having.get(i, []) for i in range(len(programs))]), set(having)

    @property
    def slow_rows(self) -> int:
        return sum(change.slow_rows for change, _ in self._changes)

    def __bool__(self) -> bool:
        return bool(self._tables) or bool(self._ignored.size)

    def kept(self, rows: Rows) -> Rows:
        """The rows that stay; the same array if all do. Raises MalformedRow naming the row."""
        keep = np.ones(len(rows), np.bool_)
        if self._ignored.size:
            keep &= ~np.isin(rows["start_ts"], self._ignored)
        tables = rows["table"]
        for number, table in self._tables.items():
            mine = tables == number
            if mine.any():
                self._by_kind(rows, mine, table, keep)
        for change, having in self._changes:
            self._unchanged(rows, change, having, keep)
        for number, table in self._tables.items():
            if any(table.expressions.values()):
                self._by_value(rows, number, table, keep)
        return rows if keep.all() else rows[keep]

    @staticmethod
    def _by_kind(rows: Rows, mine: Kept, table: _Table, keep: Kept) -> None:
        for kind in table.kinds:
            keep &= ~(mine & (rows["kind"] == kind))

    @staticmethod
    def _unchanged(rows: Rows, change: ColumnChange, having: set[int], keep: Kept) -> None:
        """Leave out updates that change none of the watched columns."""
        at = np.flatnonzero(keep & (rows["kind"] == KIND_UPDATE) & np.isin(rows["table"], list(having)))
        if at.size:
            keep[at] = change.changed(rows[at])

    def _by_value(self, rows: Rows, number: int, table: _Table, keep: Kept) -> None:
        """Leave out rows for which an expression is true."""
        for kind, expressions in table.expressions.items():
            for expression in expressions:
                at = np.flatnonzero(keep & (rows["table"] == number) & (rows["kind"] == kind))
                if at.size:
                    keep[at] = self._not_held(rows[at], expression)

    def _not_held(self, rows: Rows, expression: _Expression) -> list[bool]:
        columns = (rows[name].tolist() for name in ("key", "key_len", expression.image, expression.size))
        found = []
        for place, (key, key_size, image, size) in enumerate(zip(*columns, strict=True)):
            try:
                found.append(not expression.holds(string_at(key, key_size), string_at(image, size)))
            except TidemillError as error:
                row = raw_record(rows, place)
                where = f"table {self._names[row.table]}, key {row.key.hex()}, commit_ts {row.commit_ts}"
                raise MalformedRow(f"event filter: {where}: {error.message}", hint=error.hint) from error
        return found
