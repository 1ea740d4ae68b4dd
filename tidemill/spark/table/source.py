"""`format("tidemill.table")`: the data source as Spark sees it. docs/spark/tables.md explains its options.

Spark makes these objects in several processes: one makes the DataFrame and asks for its schema, another plans each query, and workers read.
The ts is chosen where the DataFrame is made, so that its schema and all queries over it have the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict, DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from tidemill.errors import SchemaError
from tidemill.spark.cluster.connection import connected
from tidemill.spark.source.filters import Pushing
from tidemill.spark.source.frame import chosen
from tidemill.spark.source.source import spark_schema
from tidemill.spark.source.versions import arrow_schema_in_utc
from tidemill.spark.table.bounds import Bounds, bounds_of
from tidemill.spark.table.holding import Hold, start_keeper
from tidemill.spark.table.options import TableOptions, parse_table_options
from tidemill.spark.table.plan import TablePlan, TableTask, plan_table
from tidemill.spark.table.upstream import TableAt, check_history, find_table
from tidemill.tidb.columns.forms import check_castable, column_type

_log = logging.getLogger(__name__)


class TableSource(DataSource):
    """`spark.read.format("tidemill.table")`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._found: TableAt | None = None

    @classmethod
    def name(cls) -> str:
        return "tidemill.table"

    def _table(self, options: TableOptions) -> TableAt:
        if self._found is None:
            self._found = asyncio.run(find_table(options))
        return self._found

    def schema(self) -> StructType:
        options = parse_table_options(self.options)
        picked = chosen(self._table(options).version, options.columns)
        return spark_schema(pa.schema([pa.field(c.name, column_type(c, options.time_as).arrow) for c in picked]))

    def reader(self, schema: StructType) -> TableReader:
        options = parse_table_options(self.options)
        return TableReader(options, self._table(options), arrow_schema_in_utc(schema))


class TableReader(DataSourceReader):
    """The rows of a table. Pushed filters leave partitions and key ranges out; Spark applies them all the same."""

    def __init__(self, options: TableOptions, table: TableAt, schema: pa.Schema) -> None:
        self._options, self._at, self._schema = options, table, schema
        self._bounds: Mapping[int, Bounds] = {}
        self._hold: Hold | None = None
        self._check_columns()

    def _check_columns(self) -> None:
        """Raises SchemaError for a column that cannot have the type that the DataFrame gives it."""
        known = {column.name.lower(): column for column in self._at.version.info.output_columns}
        for field in self._schema:
            column = known.get(field.name.lower())
            if column is not None:
                try:
                    check_castable(field.name, column_type(column, self._options.time_as).arrow, field.type)
                except SchemaError as error:
                    raise SchemaError(f"{self._options.what}: {error.message}") from None

    @property
    def pushFilters(self) -> Pushing:
        return Pushing(self._push)

    def _push(self, filters: list[Filter]) -> Iterable[Filter]:
        self._bounds = bounds_of(filters, self._at.version.info.output_columns, self._schema)
        return filters

    def partitions(self) -> list[InputPartition]:
        """A task for each region, or for several. Holds back garbage collection until all are read. Raises StartTsBeforeGc."""
        plan = asyncio.run(self._planned())
        _log.info("%s", plan)
        return [InputPartition((task, self._hold)) for task in plan.tasks] or [InputPartition(None)]

    async def _planned(self) -> TablePlan:
        async with connected(self._options.cluster) as pd:
            await check_history(pd, self._at.ts)
            plan = await plan_table(pd, self._at, self._bounds, self._options.regions_per_task, self._options.scans)
            if plan.tasks:
                self._hold = await start_keeper(pd, self._options.cluster, self._at.ts, len(plan.tasks))
            return plan

    async def plan(self) -> TablePlan:
        """The plan alone, for people: nothing is held or read."""
        async with connected(self._options.cluster) as pd:
            return await plan_table(pd, self._at, self._bounds, self._options.regions_per_task, self._options.scans)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return iter(())
        from tidemill.spark.table.reading import Manner, read_task  # kernels take a second to load, and only tasks need them

        task: TableTask
        hold: Hold
        task, hold = partition.value
        batches = read_task(task, Manner(self._at, self._schema, self._options.time_as, self._options.strict), hold)
        return first_rows(batches, self._options.rows_per_task) if self._options.rows_per_task else batches


def first_rows(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    """Yield the first rows, and read no more of the table than they take."""
    for batch in batches:
        yield batch.slice(0, count)
        count -= len(batch)
        if count <= 0:
            return


def table_plan(*filters: Filter, **options: str) -> TablePlan:
    """How `format("tidemill.table")` would read with these options and filters (`pyspark.sql.datasource.EqualTo(("id",), 5)`): regions, key
    ranges, partitions. Print it. Raises what the format raises."""
    given: Any = CaseInsensitiveDict(options)
    source = TableSource(given)
    reader = source.reader(source.schema())
    reader.pushFilters(list(filters))
    return asyncio.run(reader.plan())
