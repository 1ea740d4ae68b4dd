"""RAW_CHANGE batches → rows as SQL, in the order in which a database takes them. Pure, but for `columns_of`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tidemill.binlog.drainer.rows.batching import Pieces
from tidemill.binlog.drainer.rows.reading import Rows
from tidemill.binlog.drainer.rows.views import UsedTables, described
from tidemill.kernels.flow.arrange import arrange, split
from tidemill.kernels.routing.identity import ColumnChange, unique_slots
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RowArray
from tidemill.kernels.sql import SqlRowEncoder, SqlRows
from tidemill.protocols.options import EncodingOptions
from tidemill.protocols.sql.keys import always_split
from tidemill.protocols.sql.literals import SqlTable
from tidemill.records import KIND_DELETE, KIND_INSERT, KIND_UPDATE, ROW
from tidemill.tidb.schema.tracking.versions import TableVersion

CHUNK = 4096
"""Rows that are encoded at once: as many as stay in the processor's cache."""

_OPTIONS = EncodingOptions(protocol=None)

ColumnsOf = Callable[[str, str], Collection[str] | None]
"""The columns that a table downstream has; None: all that it has upstream."""


class RowEncoding:
    """Keeps what was made of tables until it is told to forget. Not safe for threads."""

    def __init__(self, columns_of: ColumnsOf | None = None) -> None:
        self._columns_of = columns_of
        self.forget()

    def forget(self) -> None:
        """Tables have changed, upstream or downstream."""
        self._used = UsedTables()
        self._made: _Made | None = None

    @property
    def tables(self) -> Sequence[SqlTable]:
        """The tables of what was encoded last."""
        return self._made.encoder.tables if self._made is not None else ()

    def chunks(self, rows: Rows) -> Iterator[SqlRows]:
        """Yield the rows, some thousand at once: of a transaction first what is deleted, then what is updated, then what is inserted.

        An update that changes a unique key is a delete and an insert. Each chunk is valid until the next one. Raises MalformedRow.
        """
        if isinstance(rows.batches, Pieces):
            yield from self._in_pieces(rows.batches, rows.tables)
            return
        if self._used.take(rows.batches, rows.tables):
            self._made = None
        made = self._ready()
        raw = described(rows.batches, self._used.places)
        yield from made.chunks(_arranged(raw, made.splits.changed(raw)))

    def _in_pieces(self, pieces: Pieces, tables: Mapping[int, TableVersion]) -> Iterator[SqlRows]:
        """Yield the rows of a large transaction. All its deletes come first, so it is gone through three times."""
        if self._used.add(sorted(pieces.table_ids), tables):
            self._made = None
        made = self._ready()
        for kind in (KIND_DELETE, KIND_UPDATE, KIND_INSERT):
            for piece in pieces:
                raw = described((piece,), self._used.places)
                yield from made.chunks(_split(raw, made.splits.changed(raw), kind))

    def _ready(self) -> _Made:
        if self._made is None:
            self._made = _Made(self._used.versions, self._columns_of)
        return self._made


class _Made:
    """The kernels for the tables in use."""

    def __init__(self, versions: Sequence[TableVersion], columns_of: ColumnsOf | None) -> None:
        programs = [TableProgram.of(version) for version in versions]
        only = [columns_of(*version.name) if columns_of is not None else None for version in versions]
        self.encoder = SqlRowEncoder(programs, _OPTIONS, only)
        self.splits = ColumnChange(programs, list(map(_split_slots, programs, self.encoder.tables)))

    def chunks(self, rows: RowArray) -> Iterator[SqlRows]:
        """Yield rows as SQL."""
        for begin in range(0, len(rows), CHUNK):
            some = rows[begin : begin + CHUNK]
            yield self.encoder.encode(some, np.array([0, len(some)], np.int32))


def _split_slots(program: TableProgram, table: SqlTable) -> list[int]:
    """Return the slots of the columns whose change makes an update a delete and an insert."""
    if not table.has_key or always_split(program.info):
        return sorted(program.slots.values())
    return sorted(unique_slots(program))


def _split(rows: RowArray, changed: np.ndarray[Any, Any], kind: int = 0) -> RowArray:
    """Return the rows with updates split where `changed` is set; `kind`: only these, 0: all."""
    parts: RowArray = np.zeros(2 * len(rows), ROW)
    return parts[: split(len(rows), rows.ctypes.data, np.ascontiguousarray(changed).ctypes.data, kind, parts.ctypes.data)]


def _arranged(rows: RowArray, changed: np.ndarray[Any, Any]) -> RowArray:
    """Return the rows with updates split where `changed` is set, and those of each transaction by kind."""
    parts = _split(rows, changed)
    count = len(parts)
    out: RowArray = np.zeros(count, ROW)
    owned, counts = np.ones(1, np.uint8), np.zeros(1, np.int32)
    seen, order, starts = (np.zeros(count + 1, np.int32) for _ in range(3))
    arrange(count, parts.ctypes.data, *(one.ctypes.data for one in (owned, counts, seen, order, starts, out)))
    return out
