"""What a task does: reads its key ranges from TiKV, and gives the rows to Spark as Arrow batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.capture.tikv.read.resolving import resolving_scan
from tidemill.capture.tikv.read.tables import drained
from tidemill.errors import StartTsBeforeGc
from tidemill.kernels.columns import ColumnBuilder, ColumnProgram
from tidemill.kernels.load import Pairs
from tidemill.kernels.rows.program import TableProgram
from tidemill.records import KIND_INSERT, ROW
from tidemill.spark.cluster.connection import connected
from tidemill.spark.source.casting import cast_column
from tidemill.spark.table.holding import Hold, OwnSafePoint, told
from tidemill.spark.table.plan import Range, TableTask
from tidemill.spark.table.upstream import TableAt, check_history
from tidemill.tidb.columns.forms import IMAGES, TimeAs

PAGE_ROWS = 1024
"""Rows that TiKV is asked for at once."""
CHUNK_ROWS = 8192
CHUNK_BYTES = 8 << 20
"""Rows, and bytes of keys and values, from which on a batch is made."""

_INSERTS = 1 << IMAGES.index("insert")
_HINT = "The DataFrame has another type for the column than the table. Leave it to the table, or use string."


@dataclass(frozen=True, slots=True)
class Manner:
    """How all tasks of a DataFrame read. `schema`: the DataFrame's."""

    table: TableAt
    schema: pa.Schema
    time_as: TimeAs
    strict: bool


def read_task(task: TableTask, manner: Manner, hold: Hold) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task in key order.

    Raises StartTsBeforeGc, UpstreamUnavailable, UpstreamError, MalformedRow.
    """
    loop = asyncio.new_event_loop()
    try:
        with told(hold, task.number) as is_kept:
            columns = _columns(manner)
            pages = _pages(hold, task.ranges, is_kept=is_kept)
            try:
                for chunk in drained(loop, pages):
                    yield from columns.batches(chunk)
            finally:
                loop.run_until_complete(pages.aclose())
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _pages(hold: Hold, ranges: Sequence[Range], *, is_kept: bool) -> AsyncGenerator[list[Pairs], None]:
    """Yield the pairs of ranges, some thousand at once. `is_kept`: the keeper holds back garbage collection."""
    waiting: list[Pairs] = []
    rows = size = 0
    async with connected(hold.cluster) as pd:
        scan, own = resolving_scan(pd, hold.ts), OwnSafePoint(pd, hold) if not is_kept else None
        try:
            if own is not None:
                await own.begin()
            for start, end in ranges:
                async for pairs in scan.pages(start, end, PAGE_ROWS):
                    waiting.append(pairs)
                    rows, size = rows + len(pairs), size + len(pairs.data)
                    if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
                        yield waiting
                        waiting, rows, size = [], 0, 0
                    if own is not None:
                        await own.renew()
        except StartTsBeforeGc:
            await check_history(pd, hold.ts)  # says what to do
            raise
        finally:
            if own is not None:
                await own.end()
    if waiting:
        yield waiting


class TableColumns:
    """Turns pairs of a table into typed columns."""

    def __init__(self, manner: Manner) -> None:
        version, self._schema, self._ts = manner.table.version, manner.schema, manner.table.ts
        known = {column.name.lower(): column for column in version.info.output_columns}
        self._name = ".".join(version.name)
        columns = {field.name: known[field.name.lower()] for field in self._schema if field.name.lower() in known}
        self._places = {name: place for place, name in enumerate(columns)}
        program = TableProgram.of(version, json=manner.table.style)
        one = ColumnProgram(program, list(columns.values()), time_as=manner.time_as, strict=manner.strict)
        self._builder = ColumnBuilder([one], _INSERTS)

    def batches(self, pages: Sequence[Pairs]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some pages. Raises MalformedRow, SchemaError."""
        for built in self._builder.build(records(pages, self._ts)):
            columns = []
            for field in self._schema:
                place = self._places.get(field.name)
                values = built.columns[place] if place is not None else None
                columns.append(cast_column(f"{self._name}, column {field.name}", values, field.type, len(built), _HINT))
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)


def records(pages: Sequence[Pairs], ts: int) -> npt.NDArray[np.void]:
    """ROW records of pairs, each an insert at `ts`. They point into the pages: keep these."""
    rows = np.zeros(sum(map(len, pages)), ROW)
    at = 0
    for page in pages:
        part = rows[at : at + len(page)]
        base = page.data.ctypes.data
        part["key"], part["key_len"] = base + page.places[:, 0], page.places[:, 1]
        part["value"], part["value_len"] = base + page.places[:, 2], page.places[:, 3]
        at += len(page)
    rows["old_len"], rows["kind"] = -1, KIND_INSERT
    rows["start_ts"] = rows["commit_ts"] = ts
    return rows


_MADE: list[tuple[Manner, TableColumns]] = []


def _columns(manner: Manner) -> TableColumns:
    """What reads these rows. Kept for the next task of this process, which is mostly one of the same query."""
    if not _MADE or _MADE[0][0] != manner:
        _MADE[:] = [(manner, TableColumns(manner))]
    return _MADE[0][1]
