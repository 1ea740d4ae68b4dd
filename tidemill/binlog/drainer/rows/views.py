"""RAW_CHANGE batches as ROW records, which kernels read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from tidemill.binlog.blocks import Array
from tidemill.kernels.rows.views import RowArray
from tidemill.records import KIND_DELETE, KIND_INSERT, KIND_UPDATE, ROW
from tidemill.tidb.schema.tracking.versions import TableVersion

_IMAGES = (("key", "key", "key_len"), ("value", "value", "value_len"), ("old_value", "old_value", "old_len"))


def described(batches: Sequence[pa.RecordBatch], places: Mapping[int, int]) -> RowArray:
    """Return the rows of batches, which they point into. `places`: the number of each table by its id in the batches."""
    raw: RowArray = np.zeros(sum(batch.num_rows for batch in batches), ROW)  # np.concatenate would drop the holes of ROW
    at = 0
    for batch in batches:
        _describe(raw[at : at + batch.num_rows], batch, places)
        at += batch.num_rows
    return raw


def numbers(batch: pa.RecordBatch, name: str) -> Array:
    """Return a column of numbers."""
    found: Array = batch.column(name).to_numpy(zero_copy_only=True)
    return found


class UsedTables:
    """The tables that have had rows. Each keeps the number that it got with its first row, also in another version."""

    def __init__(self) -> None:
        self._known: dict[int, TableVersion] = {}

    @property
    def versions(self) -> list[TableVersion]:
        """Their newest versions, by number."""
        return [*self._known.values()]

    @property
    def places(self) -> dict[int, int]:
        """The number of each, by its id in the batches."""
        return {table_id: number for number, table_id in enumerate(self._known)}

    def take(self, batches: Sequence[pa.RecordBatch], tables: Mapping[int, TableVersion]) -> bool:
        """Add the tables of batches. Returns whether one is new or has another version."""
        return self.add((table_id for batch in batches for table_id in np.unique(numbers(batch, "table_id")).tolist()), tables)

    def add(self, table_ids: Iterable[int], tables: Mapping[int, TableVersion]) -> bool:
        """Add tables, by their ids in batches. Returns as `take`."""
        changed = False
        for table_id in table_ids:
            if self._known.get(table_id) is not tables[table_id]:
                self._known[table_id] = tables[table_id]
                changed = True
        return changed


def _describe(rows: RowArray, batch: pa.RecordBatch, places: Mapping[int, int]) -> None:
    """Fill in the ROW records of a batch, which they point into."""
    rows["commit_ts"], rows["start_ts"] = numbers(batch, "commit_ts"), numbers(batch, "start_ts")
    for name, begin, length in _IMAGES:
        column = batch.column(name)
        _, offsets, data = column.buffers()
        edges = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
        rows[begin] = (edges[:-1] + (data.address if data is not None else 0)).astype(np.uint64)
        rows[length] = np.where(column.is_valid().to_numpy(zero_copy_only=False), np.diff(edges), -1)
    ids = numbers(batch, "table_id")
    for number in np.unique(ids).tolist():
        rows["table"][ids == number] = places[number]
    rows["kind"] = np.where(rows["value_len"] < 0, KIND_DELETE, np.where(rows["old_len"] < 0, KIND_INSERT, KIND_UPDATE))
