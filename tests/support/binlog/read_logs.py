"""What binlogs add to a change log, as the kernels read them and as the reference does."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tests.support.binlog.blocks import block
from tidemill.binlog.blocks import Binlogs
from tidemill.binlog.drainer.rows.batching import ANY_VERSION, Batched, Batcher, KnownTables, Stop
from tidemill.binlog.drainer.schemas import Schemas
from tidemill.binlog.messages import Binlog
from tidemill.binlog.source.reading import LogReading, SchemaRow
from tidemill.changelog.spread import Layout, SplitTable
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.catalog import Catalog
from tidemill.tidb.schema.tracking.versions import TableVersion

LAYOUT = Layout(0, 4, (SplitTable(101, "t", (b"\x80\0\0\0\0\0\0\0",), (0, 2)),))


class Counting(Batcher):
    """Knows how often it left a transaction to the reference."""

    left = 0

    def read(self, binlogs: Binlogs, begin: int, tables: KnownTables, layout: Layout) -> Batched:
        found = super().read(binlogs, begin, tables, layout)
        self.left += found.stop is Stop.REFERENCE
        return found


class Reference(Counting):
    """Leaves all to the reference."""

    def read(self, binlogs: Binlogs, begin: int, tables: KnownTables, layout: Layout) -> Batched:
        return Batched((), begin, Stop.REFERENCE)


class GivenSchemas(Schemas):
    """Has these tables, and no TiKV to look into."""

    def __init__(self, tables: Sequence[TableInfo]) -> None:
        super().__init__(None, Catalog(), lambda what: None)  # type: ignore[arg-type]
        self._given = {info.id: TableVersion("d", 2, info, info.physical_ids, 0) for info in tables}

    async def table(self, table_id: int, start_ts: int, commit_ts: int) -> TableVersion | None:
        return self._given.get(table_id)

    def settled(self, table_id: int) -> int:
        return ANY_VERSION


Added = tuple[dict[int, pa.Table], list[SchemaRow]]
"""The rows of each partition, in order, and those of the schema stream."""


async def added(schemas: Schemas, binlogs: Binlogs, batcher: Batcher, layout: Layout = LAYOUT) -> Added:
    """What binlogs add."""
    reading = LogReading(schemas, lambda version: True, lambda: layout)
    reading._batcher = batcher
    batches: dict[int, list[pa.RecordBatch]] = {}
    rows: list[SchemaRow] = []
    at = 0
    while at < len(binlogs):
        read = await reading.read(binlogs.part(at))
        for entry in read.entries:
            rows += entry.schema
            pieces = ((partition, batch) for partition, some in entry.large for batch in some)
            for partition, batch in (*entry.changes, *pieces):
                batch.validate(full=True)
                batches.setdefault(partition, []).append(batch)
        at += read.count
    return {partition: pa.Table.from_batches(some).combine_chunks() for partition, some in sorted(batches.items())}, rows


async def both(tables: Sequence[TableInfo], binlogs: Sequence[Binlog], batcher: Batcher) -> tuple[Added, Added]:
    """What transactions add, by the kernels and by the reference."""
    some = block(*binlogs)
    return await added(GivenSchemas(tables), some, batcher), await added(GivenSchemas(tables), some, Reference())
