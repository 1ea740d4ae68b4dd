"""RAW_CHANGE batches → rows as SQL, in the order in which a database takes them. Pure, but for `columns_of`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.binlog.drainer.rows.reading import Rows
from tidemill.kernels.flow.arrange import arrange, split
from tidemill.kernels.flow.changes import ColumnChange
from tidemill.kernels.routing.identity import unique_slots
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

_OPTIONS = EncodingOptions(protocol=None, as_sql=True)
_IMAGES = (("key", "key", "key_len"), ("value", "value", "value_len"), ("old_value", "old_value", "old_len"))

ColumnsOf = Callable[[str, str], Collection[str] | None]
"""The columns that a table downstream has; None: all that it has upstream."""


class RowEncoding:
    """Keeps what was made of tables until it is told to forget. Not safe for threads."""

    def __init__(self, columns_of: ColumnsOf | None = None) -> None:
        self._columns_of = columns_of
        self.forget()

    def forget(self) -> None:
        """Tables have changed, upstream or downstream."""
        self._used: dict[int, tuple[TableVersion, int]] = {}
        self._made: _Made | None = None

    @property
    def tables(self) -> Sequence[SqlTable]:
        """The tables of what was encoded last."""
        return self._made.encoder.tables if self._made is not None else ()

    def chunks(self, rows: Rows) -> Iterator[SqlRows]:
        """Yield the rows, some thousand at once: of a transaction first what is deleted, then what is updated, then what is inserted.

        An update that changes a unique key is a delete and an insert. Each chunk is valid until the next one. Raises MalformedRow.
        """
        places = self._places(rows)
        raw: RowArray = np.zeros(sum(batch.num_rows for batch in rows.batches), ROW)  # np.concatenate would drop the holes of ROW
        at = 0
        for batch in rows.batches:
            _describe(raw[at : at + batch.num_rows], batch, places)
            at += batch.num_rows
        made = self._ready()
        arranged = _arranged(raw, made.splits.changed(raw))
        for begin in range(0, len(arranged), CHUNK):
            some = arranged[begin : begin + CHUNK]
            yield made.encoder.encode(some, np.array([0, len(some)], np.int32))

    def _places(self, rows: Rows) -> dict[int, int]:
        """Return the number of each table that has rows, by its id in the batches."""
        for batch in rows.batches:
            for number in np.unique(_numbers(batch, "table_id")).tolist():
                version = rows.tables[number]
                known = self._used.get(number)
                if known is None or known[0] is not version:
                    self._used[number] = version, len(self._used) if known is None else known[1]
                    self._made = None
        return {number: place for number, (_, place) in self._used.items()}

    def _ready(self) -> _Made:
        if self._made is None:
            self._made = _Made([version for version, _ in self._used.values()], self._columns_of)
        return self._made


class _Made:
    """The kernels for the tables in use."""

    def __init__(self, versions: Sequence[TableVersion], columns_of: ColumnsOf | None) -> None:
        programs = [TableProgram.of(version) for version in versions]
        only = [columns_of(*version.name) if columns_of is not None else None for version in versions]
        self.encoder = SqlRowEncoder(programs, _OPTIONS, only)
        self.splits = ColumnChange(programs, list(map(_split_slots, programs, self.encoder.tables)))


def _split_slots(program: TableProgram, table: SqlTable) -> list[int]:
    """Return the slots of the columns whose change makes an update a delete and an insert."""
    if not table.has_key or always_split(program.info):
        return sorted(program.slots.values())
    return sorted(unique_slots(program))


def _numbers(batch: pa.RecordBatch, name: str) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = batch.column(name).to_numpy(zero_copy_only=True)
    return found


def _describe(rows: RowArray, batch: pa.RecordBatch, places: dict[int, int]) -> None:
    """Fill in the ROW records of a batch, which they point into."""
    rows["commit_ts"], rows["start_ts"] = _numbers(batch, "commit_ts"), _numbers(batch, "start_ts")
    for name, begin, length in _IMAGES:
        column = batch.column(name)
        _, offsets, data = column.buffers()
        edges = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
        rows[begin] = (edges[:-1] + (data.address if data is not None else 0)).astype(np.uint64)
        rows[length] = np.where(column.is_valid().to_numpy(zero_copy_only=False), np.diff(edges), -1)
    ids = _numbers(batch, "table_id")
    for number in np.unique(ids).tolist():
        rows["table"][ids == number] = places[number]
    rows["kind"] = np.where(rows["value_len"] < 0, KIND_DELETE, np.where(rows["old_len"] < 0, KIND_INSERT, KIND_UPDATE))


def _arranged(rows: RowArray, changed: np.ndarray[Any, Any]) -> RowArray:
    """Return the rows with updates split where `changed` is set, and those of each transaction by kind."""
    parts: RowArray = np.zeros(2 * len(rows), ROW)
    count = split(len(rows), rows.ctypes.data, np.ascontiguousarray(changed).ctypes.data, 0, parts.ctypes.data)
    out: RowArray = np.zeros(count, ROW)
    owned, counts = np.ones(1, np.uint8), np.zeros(1, np.int32)
    seen, order, starts = (np.zeros(count + 1, np.int32) for _ in range(3))
    arrange(count, parts.ctypes.data, *(one.ctypes.data for one in (owned, counts, seen, order, starts, out)))
    return out
