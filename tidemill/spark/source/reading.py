"""What a task of a DataFrame does: reads the rows of one slice of the log, and gives them to Spark as Arrow batches."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.delivery.task.chunker import Chunker
from tidemill.delivery.task.reader import Sources
from tidemill.errors import SchemaError
from tidemill.kernels.columns import Built, ColumnBuilder, ColumnProgram
from tidemill.kernels.columns.layout import ALL_IMAGES, IMAGES
from tidemill.kernels.flow import layout as f
from tidemill.kernels.flow.layout import TableMap
from tidemill.kernels.rows.program import TableProgram
from tidemill.spark.source.frame import ReadColumn
from tidemill.spark.source.options import Kind
from tidemill.tidb.columns.forms import LARGEST_DECIMAL, TimeAs
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.tidb.types.jsonstyle import JsonStyle
from tidemill.tso import LOGICAL_BITS

CHUNK_ROWS = 8192
"""Changes that are turned into one batch: Spark takes a batch as a whole."""


@dataclass(frozen=True, slots=True)
class TableToRead:
    """A version of a table. `columns`: those of the DataFrame, where it has typed columns."""

    version: TableVersion
    columns: tuple[ReadColumn, ...] = ()


@dataclass(frozen=True, slots=True)
class Slice:
    """What a task reads: rows of (from_ts, to_ts] in these files. It is pickled for the task, so tables are packed once for many slices."""

    chains: tuple[tuple[str, ...], ...]  # each sorted
    from_ts: int
    to_ts: int
    tables: bytes  # a tuple of TableToRead, pickled
    style: JsonStyle


@dataclass(frozen=True, slots=True)
class Manner:
    """How all tasks of a DataFrame read."""

    kind: Kind
    schema: pa.Schema
    time_as: TimeAs = TimeAs.STRING
    strict: bool = False
    images: int = ALL_IMAGES  # bits of `kernels.columns.layout.IMAGES`


def packed(tables: Sequence[TableToRead]) -> bytes:
    """Tables, as a slice has them."""
    return pickle.dumps(tuple(tables))


def physical_ids(one: Slice) -> set[int]:
    """The ids under which the rows of a slice's tables are stored."""
    return {physical for table in _unpacked(one.tables) for physical in table.version.physical_ids}


@functools.lru_cache(maxsize=64)
def _unpacked(tables: bytes) -> tuple[TableToRead, ...]:
    found: tuple[TableToRead, ...] = pickle.loads(tables)
    return found


class _Routing:
    """Rules for the merge kernel: rows of these tables are read, those of all others are not."""

    def __init__(self, tables: Sequence[TableVersion]) -> None:
        self.tables = TableMap()
        self._rules = np.zeros((max(1, len(tables)), f.RULE_WORDS), np.int64)
        for number, version in enumerate(tables):
            for physical in version.physical_ids:
                self.tables.set(physical, number)

    @property
    def rules_address(self) -> int:
        return int(self._rules.ctypes.data)

    def resolve(self, table_id: int) -> None:
        """An id of no table that is read."""
        self.tables.set(table_id, f.DROP)


def read_slice(one: Slice, manner: Manner) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a slice, in the order of commit_ts, start_ts and key; the image before an update precedes the one after it.

    Raises LogCorrupt, SegmentGone, LogUnavailable, MalformedRow.
    """
    tables = _unpacked(one.tables)
    if manner.kind is Kind.RAW:
        yield from _raw(one, manner, [table.version for table in tables])
        return
    readers = _readers(one.tables, manner, one.style)
    routing = _Routing([table.version for table in tables])
    owned = np.ones(1, np.uint8)
    sources = Sources(one.chains, one.from_ts, one.to_ts)
    for chunk in Chunker(sources, routing, owned, CHUNK_ROWS, whole_transactions=False):
        yield from readers.batches(chunk.rows)


def _raw(one: Slice, manner: Manner, tables: Sequence[TableVersion]) -> Iterator[pa.RecordBatch]:
    """Rows as the log has them, one source after the other."""
    wanted = pa.array([physical for version in tables for physical in version.physical_ids], pa.int64())
    sources = Sources(one.chains, one.from_ts, one.to_ts)
    for number, words in enumerate(sources.words[: len(sources)]):
        while words[f.S_MORE]:
            sources.begin_chunk()
            sources.advance(number)
            batch, begin, end = sources.all[number].batch, int(words[f.S_POS]), int(words[f.S_END])
            if batch is None or begin == end:
                continue
            found = pa.table([batch.column(n) for n in manner.schema.names], manner.schema.names).slice(begin, end - begin)
            found = found.filter(pc.is_in(found["table_id"], wanted)).cast(manner.schema)
            yield from found.to_batches()


class _TypedReaders:
    """Turns rows into typed columns: one table at a time, because a slice of typed columns has one."""

    def __init__(self, table: TableToRead, manner: Manner, style: JsonStyle) -> None:
        version = table.version
        self._columns = [one for one in table.columns if one.column is not None]
        self._all, self._manner = table.columns, manner
        program = TableProgram(version.schema, version.table, version.info, json=style)
        infos = [one.column for one in self._columns if one.column is not None]
        self._builder = ColumnBuilder([ColumnProgram(program, infos, time_as=manner.time_as, strict=manner.strict)], manner.images)
        self._names = version.name
        self._heads = _Heads(version.schema, version.table)

    def batches(self, rows: npt.NDArray[np.void]) -> Iterator[pa.RecordBatch]:
        for built in self._builder.build(rows):
            yield self._batch(built)

    def _batch(self, built: Built) -> pa.RecordBatch:
        arrays = dict(zip((one.name for one in self._columns), built.columns, strict=True))
        columns = []
        for name, kind in zip(self._manner.schema.names, self._manner.schema.types, strict=True):
            head = self._heads.column(name, built)
            columns.append(self._cast(name, arrays.get(name) if head is None else head, kind, len(built)))
        return pa.RecordBatch.from_arrays(columns, schema=self._manner.schema)

    def _cast(self, name: str, values: pa.Array | None, kind: pa.DataType, rows: int) -> pa.Array:
        if values is None:
            return pa.nulls(rows, kind)
        if values.type == kind:
            return values
        try:
            if pa.types.is_integer(values.type) and pa.types.is_decimal(kind):  # Arrow wants room for any number of its own type
                values = values.cast(pa.decimal128(min(19 + kind.scale, LARGEST_DECIMAL), kind.scale))
            return values.cast(kind)
        except pa.ArrowInvalid as error:
            where = f"{'.'.join(self._names)}, column {name}"
            raise SchemaError(
                f"{where}: a value of type {values.type} cannot be {kind}: {error}",
                hint="The column had another type then. Choose the table's columns of another ts: option schemaTs.",
            ) from None


class _Heads:
    """What is told of each change, as columns."""

    _CODES = pa.array(IMAGES, pa.string())

    def __init__(self, database: str, table: str) -> None:
        self._made: dict[str, Callable[[Built], pa.Array]] = {
            "_change_type": lambda built: self._CODES.take(pa.array(built.changes)),
            "_commit_ts": lambda built: pa.array(built.commit_ts.view(np.int64)),
            "_commit_timestamp": lambda built: moments(built.commit_ts),
            "_start_ts": lambda built: pa.array(built.start_ts.view(np.int64)),
            "_database": lambda built: self._repeated(database, len(built)),
            "_table": lambda built: self._repeated(table, len(built)),
        }
        self._kept: dict[str, pa.Array] = {}

    def column(self, name: str, built: Built) -> pa.Array | None:
        """Return the column by this name, if it is one of these."""
        made = self._made.get(name)
        return made(built) if made is not None else None

    def _repeated(self, text: str, rows: int) -> pa.Array:
        kept = self._kept.get(text)
        if kept is None or len(kept) < rows:
            kept = self._kept[text] = pa.repeat(pa.scalar(text, pa.string()), max(rows, 2 * CHUNK_ROWS))
        return kept.slice(0, rows)


def moments(ts: npt.NDArray[np.uint64]) -> pa.Array:
    """The moments of timestamps."""
    micro = (ts >> np.uint64(LOGICAL_BITS)).astype(np.int64) * 1000
    return pa.array(micro, pa.timestamp("us", "UTC"))


def _readers(tables: bytes, manner: Manner, style: JsonStyle) -> Any:
    """What reads these tables. Kept for the next task of this process, as long as the DataFrame is read in the same manner."""
    key = tables, manner.kind, str(manner.schema), manner.time_as, manner.strict, manner.images, style
    if key not in _MADE:
        if len(_MADE) >= _KEPT:
            _MADE.clear()
        _MADE[key] = _TypedReaders(_unpacked(tables)[0], manner, style)
    return _MADE[key]


_KEPT = 64
_MADE: dict[Any, Any] = {}
