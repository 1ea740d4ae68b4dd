"""What a task of a DataFrame does: reads the rows of one slice of the log, and gives them to Spark as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.delivery.task.chunker import Chunker
from tidemill.delivery.task.reader import Sources
from tidemill.kernels.columns import CHANGES, Built, ColumnBuilder, ColumnProgram, ObjectBuilder, ObjectProgram
from tidemill.kernels.flow import layout as f
from tidemill.kernels.flow.arrange import arrange
from tidemill.kernels.flow.layout import TableMap
from tidemill.kernels.rows.program import TableProgram
from tidemill.records import ROW
from tidemill.spark.source.casting import cast_column
from tidemill.spark.source.frame import moments
from tidemill.spark.source.options import Kind
from tidemill.spark.source.slices import Manner, Packed, Slice
from tidemill.tidb.columns.forms import IMAGES
from tidemill.tidb.types.jsonstyle import JsonStyle

CHUNK_ROWS = 8192
"""Changes that are turned into one batch: Spark takes a batch as a whole."""
_OTHER_TYPE = (
    "Choose a type that has room for the column's values; or, if the column had another type then, the table's columns of another ts: "
    "option schemaTs."
)


class _Routing:
    """Rules for the merge kernel: rows of these tables are read, those of all others are not. Tables get numbers as their rows come."""

    def __init__(self, tables: Sequence[Packed]) -> None:
        self.tables = TableMap()
        self.used: list[Packed] = []
        self._rules = np.zeros((max(1, len(tables)), f.RULE_WORDS), np.int64)
        self._by_id = {physical: table for table in tables for physical in table.physical_ids}

    @property
    def rules_address(self) -> int:
        return int(self._rules.ctypes.data)

    def resolve(self, table_id: int) -> None:
        """Enter an id that a row has."""
        table = self._by_id.get(table_id)
        if table is None:
            self.tables.set(table_id, f.DROP)
            return
        number = next((i for i, one in enumerate(self.used) if one is table), len(self.used))
        if number == len(self.used):
            self.used.append(table)
        self.tables.set(table_id, number)


def read_slice(one: Slice, manner: Manner) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a slice, in the order of commit_ts, start_ts and key; the image before an update precedes the one after it.

    Where a row may keep its key and move (`Packed.keys_move`) the order inside a transaction is deletes, updates, inserts, over all
    partitions of a table. Raises LogCorrupt, SegmentGone, LogUnavailable, MalformedRow.
    """
    if manner.kind is Kind.RAW:
        yield from _raw(one, manner)
        return
    readers = _readers(one.tables, manner, one.style)
    owned = np.ones(1, np.uint8)
    sources = Sources(one.chains, one.from_ts, one.to_ts)
    ordered = any(table.keys_move for table in one.tables)
    arranged = _Arranged(CHUNK_ROWS if ordered else 0)
    for chunk in Chunker(sources, readers.routing, owned, CHUNK_ROWS, whole_transactions=ordered):
        yield from readers.batches(arranged(chunk.rows) if ordered else chunk.rows)


class _Arranged:
    """Orders the rows of each transaction: deletes, updates, inserts. Its arrays are reused for every chunk."""

    def __init__(self, max_rows: int) -> None:
        self._out = np.zeros(max_rows, ROW)
        self._owned, self._counts = np.ones(1, np.uint8), np.zeros(1, np.int32)
        self._seen, self._order, self._starts = (np.zeros(max_rows + 1, np.int32) for _ in range(3))
        scratch = (self._owned, self._counts, self._seen, self._order, self._starts, self._out)
        self._places = tuple(one.ctypes.data for one in scratch)

    def __call__(self, rows: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
        """Return the rows in order, valid until the next call."""
        arrange(len(rows), rows.ctypes.data, *self._places)
        return self._out[: len(rows)]


def _raw(one: Slice, manner: Manner) -> Iterator[pa.RecordBatch]:
    """Rows as the log has them, one source after the other."""
    wanted = pa.array(sorted(one.physical_ids()), pa.int64())
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


class _TypedRows:
    """Turns rows into typed columns: one table at a time, because a slice of typed columns has one."""

    def __init__(self, tables: Sequence[Packed], manner: Manner, style: JsonStyle) -> None:
        table = tables[0].unpacked()
        version = table.version
        self.routing = _Routing(tables)
        self._columns = [one for one in table.columns if one.column is not None]
        self._manner = manner
        program = TableProgram(version.schema, version.table, version.info, json=style)
        infos = [one.column for one in self._columns if one.column is not None]
        self._builder = ColumnBuilder([ColumnProgram(program, infos, time_as=manner.time_as, strict=manner.strict)], manner.images)
        self._names = version.name
        self._heads = _Heads(IMAGES)

    def batches(self, rows: npt.NDArray[np.void]) -> Iterator[pa.RecordBatch]:
        for built in self._builder.build(rows):
            yield self._batch(built)

    def _batch(self, built: Built) -> pa.RecordBatch:
        arrays = dict(zip((one.name for one in self._columns), built.columns, strict=True))
        columns = []
        for name, kind in zip(self._manner.schema.names, self._manner.schema.types, strict=True):
            head = self._heads.column(name, built, [self._names])
            values = arrays.get(name) if head is None else head
            columns.append(cast_column(f"{'.'.join(self._names)}, column {name}", values, kind, len(built), _OTHER_TYPE))
        return pa.RecordBatch.from_arrays(columns, schema=self._manner.schema)


class _ObjectRows:
    """Turns rows of any tables into JSON objects. A table's program is made when its first row comes."""

    def __init__(self, tables: Sequence[Packed], manner: Manner, style: JsonStyle) -> None:
        self.routing = _Routing(tables)
        self._manner, self._style = manner, style
        self._programs: list[ObjectProgram] = []
        self._names: list[tuple[str, str]] = []
        self._builder = ObjectBuilder(self._programs)
        self._heads = _Heads(CHANGES)

    def batches(self, rows: npt.NDArray[np.void]) -> Iterator[pa.RecordBatch]:
        used = self.routing.used
        if len(used) > len(self._programs):
            for table in used[len(self._programs) :]:
                version = table.unpacked().version
                self._names.append(version.name)
                self._programs.append(ObjectProgram(TableProgram(version.schema, version.table, version.info, json=self._style)))
            self._builder = ObjectBuilder(self._programs)
        for built in self._builder.build(rows):
            objects = dict(zip(("before", "after"), built.columns, strict=True))
            columns = []
            for name in self._manner.schema.names:
                head = self._heads.column(name, built, self._names)
                columns.append(objects[name] if head is None else head)
            yield pa.RecordBatch.from_arrays(columns, schema=self._manner.schema)


class _Heads:
    """What is told of each change, as columns. `names`: database and table, by the numbers of tables."""

    def __init__(self, changes: Sequence[str]) -> None:
        self._changes = pa.array(changes, pa.string())
        self._kept: dict[str, pa.Array] = {}

    def column(self, name: str, built: Built, names: Sequence[tuple[str, str]]) -> pa.Array | None:
        """Return the column by this name, if it is one of these."""
        match name:
            case "_change_type":
                return self._changes.take(pa.array(built.changes))
            case "_commit_ts" | "_commit_version":
                return pa.array(built.commit_ts.view(np.int64))
            case "_commit_timestamp":
                return moments(built.commit_ts)
            case "_start_ts":
                return pa.array(built.start_ts.view(np.int64))
            case "_database":
                return self._named([database for database, _ in names], built)
            case "_table":
                return self._named([table for _, table in names], built)
        return None

    def _named(self, names: Sequence[str], built: Built) -> pa.Array:
        if len(names) > 1:
            return pa.array(names, pa.string()).take(pa.array(built.tables))
        (text,) = names
        kept = self._kept.get(text)
        if kept is None or len(kept) < len(built):
            kept = self._kept[text] = pa.repeat(pa.scalar(text, pa.string()), max(len(built), 2 * CHUNK_ROWS))
        return kept.slice(0, len(built))


def _readers(tables: tuple[Packed, ...], manner: Manner, style: JsonStyle) -> _TypedRows | _ObjectRows:
    """What reads these tables. Kept for the next task of this process, if it reads them in the same manner."""
    key = tables, manner.kind, str(manner.schema), manner.time_as, manner.strict, manner.images, style
    if key not in _MADE:
        if len(_MADE) >= _KEPT:
            _MADE.clear()
        make = _TypedRows if manner.kind is Kind.TABLE else _ObjectRows
        _MADE[key] = make(tables, manner, style)
    return _MADE[key]


_KEPT = 64
_MADE: dict[object, _TypedRows | _ObjectRows] = {}
