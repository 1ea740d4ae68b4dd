"""What Spark hands from the planner to a task: which part of the log, which versions of tables, and how it is read. Small and picklable."""

from __future__ import annotations

import functools
import pickle
from dataclasses import dataclass

import pyarrow as pa

from tidemill.spark.source.frame import ReadColumn
from tidemill.spark.source.options import Kind
from tidemill.tidb.columns.forms import ALL_IMAGES, TimeAs
from tidemill.tidb.schema.codes import HandleKind
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.tidb.types.jsonstyle import JsonStyle


@dataclass(frozen=True, slots=True)
class TableToRead:
    """A version of a table. `columns`: those of the DataFrame, where it has typed columns."""

    version: TableVersion
    columns: tuple[ReadColumn, ...] = ()


@dataclass(frozen=True, slots=True)
class Packed:
    """A table as slices have it: it is unpacked when the first of its rows comes, for there may be thousands of tables."""

    physical_ids: tuple[int, ...]
    table: bytes  # a TableToRead, pickled
    keys_move: bool  # whether a row may keep its key and get another record key: in another partition, or with another hidden handle

    @classmethod
    def of(cls, table: TableToRead) -> Packed:
        version = table.version
        keys_move = len(version.physical_ids) > 1 or version.info.handle_kind is HandleKind.HIDDEN
        return cls(version.physical_ids, pickle.dumps(table), keys_move)

    def unpacked(self) -> TableToRead:
        return _unpacked(self.table)


@functools.lru_cache(maxsize=1024)
def _unpacked(table: bytes) -> TableToRead:
    found: TableToRead = pickle.loads(table)
    return found


@dataclass(frozen=True, slots=True)
class Slice:
    """What a task reads: rows of (from_ts, to_ts] in these files."""

    chains: tuple[tuple[str, ...], ...]  # each sorted
    from_ts: int
    to_ts: int
    tables: tuple[Packed, ...]
    style: JsonStyle

    def physical_ids(self) -> set[int]:
        """The ids under which the rows of its tables are stored."""
        return {physical for table in self.tables for physical in table.physical_ids}


@dataclass(frozen=True, slots=True)
class Manner:
    """How all tasks of a DataFrame read."""

    kind: Kind
    schema: pa.Schema
    time_as: TimeAs = TimeAs.STRING
    strict: bool = False
    images: int = ALL_IMAGES  # bit 1 << i for each image i of `IMAGES` that is read
