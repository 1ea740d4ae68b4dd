"""Stored rows → the texts that are compared, by the kernels that write rows for databases."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.diff.digest import Row
from tidemill.diff.model import DiffTable
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.sql import SqlRowEncoder
from tidemill.protocols.options import EncodingOptions
from tidemill.records import KIND_INSERT, ROW

MOST_ROWS = 8192
"""Rows of one call of the kernels."""
_PAD = np.zeros(64, np.uint8)


class RowTexts:
    """Makes texts of the rows of some tables. Not safe for threads."""

    def __init__(self, tables: Sequence[DiffTable]) -> None:
        self._places = {table.number: place for place, table in enumerate(tables)}
        programs = [TableProgram(table.schema, table.table, table.info, json=table.json) for table in tables]
        self._encoder = SqlRowEncoder(programs, EncodingOptions(None))

    def of(self, table: int, keys: pa.Array, values: pa.Array, ts: int) -> list[Row]:
        """Return the texts of rows of one table, given by their keys and values at a ts. Raises MalformedRow naming the row."""
        found: list[Row] = []
        for begin in range(0, len(keys), MOST_ROWS):
            found += self._some(table, keys.slice(begin, MOST_ROWS), values.slice(begin, MOST_ROWS), ts)
        return found

    def _some(self, table: int, keys: pa.Array, values: pa.Array, ts: int) -> list[Row]:
        rows = np.zeros(len(keys), ROW)
        held = [_place(rows, name, column) for name, column in (("key", keys), ("value", values))]
        rows["old_len"], rows["table"], rows["kind"] = -1, self._places[table], KIND_INSERT
        rows["start_ts"] = rows["commit_ts"] = ts
        made = self._encoder.encode(rows, np.array([0, len(rows)], np.int32)).table
        del held
        columns = (made[name].tolist() for name in ("key", "key_len", "value", "value_len"))
        copy = ctypes.string_at
        return [(copy(key, key_len), copy(value, value_len)) for key, key_len, value, value_len in zip(*columns, strict=True)]


def _place(rows: npt.NDArray[np.void], name: str, column: pa.Array) -> object:
    """Note where the values of a binary column are, in a copy with room on both sides, which is returned to be kept."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    held = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] if data is not None and len(data) else _PAD[:0]
    padded = np.concatenate([_PAD, held, _PAD])
    rows[name] = (padded.ctypes.data + len(_PAD) + ends[:-1] - ends[0]).astype(np.uint64)
    rows[f"{name}_len"] = np.diff(ends)
    return padded
