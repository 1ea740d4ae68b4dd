"""`format("tidemill.table")` without Spark: what its Python processes call, called here; and a playground to read from."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pyspark.sql.datasource import CaseInsensitiveDict, Filter
from pyspark.sql.types import StructType

from tests.support.spark.frames import Row, rows_of
from tidemill.playground.server import PlaygroundThread
from tidemill.spark.source.frame import META
from tidemill.spark.source.rows import read_rows
from tidemill.spark.table.source import TableReader, TableSource
from tidemill.tso import compose


def table_source(pd: str, table: str, **options: str) -> TableSource:
    given: Any = CaseInsensitiveDict({"pd": pd, "table": table, **options})
    return TableSource(given)


def table_reader(pd: str, table: str, *filters: Filter, schema: StructType | None = None, **options: str) -> TableReader:
    source = table_source(pd, table, **options)
    reader = source.reader(source.schema() if schema is None else schema)
    assert list(reader.pushFilters(list(filters))) == list(filters), "Spark applies all of them again"
    return reader


def read_table(pd: str, table: str, *filters: Filter, schema: StructType | None = None, **options: str) -> list[Row]:
    """The rows that Spark gets, task by task. More than the filters leave, for Spark applies them too."""
    source = table_source(pd, table, **options)
    wanted = source.schema() if schema is None else schema
    reader = source.reader(wanted)
    reader.pushFilters(list(filters))
    return [row for partition in reader.partitions() for row in rows_of(reader.read(partition), wanted)]


def counted(rows: list[Row]) -> Counter[str]:
    """Rows without an order: tables without a key have some of them twice."""
    return Counter(repr(sorted(row.items())) for row in rows)


def changed_into(log: str, table: str, ts: int) -> Counter[str]:
    """The rows that the changes of a log have made by a ts."""
    found: Counter[str] = Counter()
    for change in read_rows(log, table=table):
        row = {name: value for name, value in change.items() if name not in META.names}
        if change["_commit_ts"] <= ts:
            found[repr(sorted(row.items()))] += 1 if change["_change_type"] in ("insert", "update_postimage") else -1
    return +found


def safe_points(cluster: PlaygroundThread) -> list[str]:
    """The names under which somebody holds back garbage collection."""
    services: dict[str, int] = cluster.call(cluster.playground.stats)["services"]
    return [name for name in services if name != "gc_worker"]


def later(cluster: PlaygroundThread, seconds: int = 60) -> None:
    """Let the cluster's time jump ahead."""
    oracle = cluster.playground.cluster.oracle
    cluster.call(lambda: oracle.advance(oracle.next() + compose(1000 * seconds)))
