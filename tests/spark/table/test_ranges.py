"""Filters → key ranges and partitions: no row that a filter leaves lies outside of them, whatever the key and the partitioning."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, IsNotNull, LessThan, LessThanOrEqual

from tidemill.playground.server import Playground
from tidemill.spark.table.bounds import Bounds, bounds_of
from tidemill.spark.table.partitions import kept_partitions
from tidemill.spark.table.ranges import WHOLE, handle_ranges, key_range
from tidemill.tidb.columns.forms import column_type
from tidemill.tidb.columns.values import TypedReader
from tidemill.tidb.keys import record_range
from tidemill.tidb.schema.model import TableInfo

TESTS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda have, want: have == want,
    GreaterThan: lambda have, want: have > want,
    GreaterThanOrEqual: lambda have, want: have >= want,
    LessThan: lambda have, want: have < want,
    LessThanOrEqual: lambda have, want: have <= want,
    In: lambda have, want: have in want,
}
DAYS = [dt.date(2023, 12, 31) + dt.timedelta(days=d) for d in range(0, 800, 61)]
TEXTS = ["", " ", "a", "a ", "a\t", "a\x1f", "ab", "a b", "ab  ", "b", "ß", "你好"]
BIG = [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]

TABLES = {
    "ints": ("id INT PRIMARY KEY, n INT", "id", [-(1 << 31), -5, -1, 0, 1, 2, 7, 100, (1 << 31) - 1]),
    "big": ("id BIGINT UNSIGNED PRIMARY KEY, n INT", "id", BIG),
    "texts": ("id VARCHAR(20) COLLATE utf8mb4_bin, n INT, PRIMARY KEY (id, n) CLUSTERED", "id", TEXTS),
    "weights": ("id VARCHAR(20) COLLATE utf8mb4_general_ci, n INT, PRIMARY KEY (id, n) CLUSTERED", "id", ["a", "b", "c "]),
    "bytes": ("id VARBINARY(20), n INT, PRIMARY KEY (id, n) CLUSTERED", "id", ["", "a", "a ", "b"]),
    "days": ("id DATE, n INT, PRIMARY KEY (id, n) CLUSTERED", "id", DAYS),
    "moments": ("id DATETIME(3), n INT, PRIMARY KEY (id, n) CLUSTERED", "id", DAYS),
    "hidden": ("id INT, n INT", "id", [None, 1, 2]),
    "by_range": (
        "id INT, n INT) PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (-5), PARTITION b VALUES LESS THAN (50),"
        " PARTITION c VALUES LESS THAN MAXVALUE",
        *("id", [None, -100, -6, -5, 0, 49, 50, 1000]),
    ),
    "by_day": (
        "id DATE, n INT) PARTITION BY RANGE COLUMNS (id) (PARTITION a VALUES LESS THAN ('2024-02-01'),"
        " PARTITION b VALUES LESS THAN ('2024-08-01'), PARTITION c VALUES LESS THAN (MAXVALUE)",
        *("id", [None, *DAYS]),
    ),
    "by_year": (
        "id DATE, n INT) PARTITION BY RANGE (YEAR(id)) (PARTITION a VALUES LESS THAN (2024), PARTITION b VALUES LESS THAN (2025),"
        " PARTITION c VALUES LESS THAN MAXVALUE",
        *("id", [None, *DAYS]),
    ),
    "by_list": (
        "id INT, n INT) PARTITION BY LIST (id) (PARTITION a VALUES IN (1, 2), PARTITION b VALUES IN (3, NULL)",
        "id",
        [None, 1, 2, 3],
    ),
    "by_hash": ("id INT, n INT) PARTITION BY HASH (id) PARTITIONS 4", "id", [None, -7, -1, 0, 1, 5, 1000]),
}


def described(playground: Playground, name: str) -> TableInfo:
    (table,) = [t for t in playground.database.catalog.tables.values() if t.name == name]
    model: TableInfo = table.model
    return model


@pytest.fixture(scope="module")
def playground() -> Playground:
    made = Playground(1)
    made.execute("CREATE DATABASE app; USE app")
    for name, (columns, _, values) in TABLES.items():
        close = "" if "PARTITIONS" in columns else ")"
        made.execute(f"CREATE TABLE {name} ({columns}{close}")
        for at, value in enumerate(values):
            text = "NULL" if value is None else str(value) if isinstance(value, int) else f"'{value}'"
            made.execute(f"INSERT INTO {name} VALUES ({text}, {at})")
    return made


def stored(playground: Playground, info: TableInfo) -> list[tuple[bytes, dict[str, Any]]]:
    """The rows of a table as DataFrames have them, by their keys."""
    reader = TypedReader(info, info.output_columns)
    found = []
    for physical_id in info.physical_ids:
        for key, value in playground.cluster.mvcc.scan(*record_range(physical_id), playground.cluster.oracle.next()):
            assert isinstance(value, bytes)
            found.append((key, dict(zip((c.name for c in info.output_columns), reader.read(key, value), strict=True))))
    return found


def schema_of(info: TableInfo) -> pa.Schema:
    return pa.schema([(column.name, column_type(column).arrow) for column in info.output_columns])


def leaves(one: Filter, row: dict[str, Any]) -> bool:
    have, want = row[one.attribute[0]], getattr(one, "value", None)  # type: ignore[attr-defined]
    return have is not None and (isinstance(one, IsNotNull) or TESTS[type(one)](have, want))


def some_filters(random: Random, values: list[Any]) -> list[Filter]:
    found: list[Filter] = [IsNotNull(("id",))]
    for _ in range(random.randint(1, 2)):
        kind = random.choice(list(TESTS))
        value = tuple(random.sample(values, min(2, len(values)))) if kind is In else random.choice(values)
        found.append(kind(("id",), value))  # type: ignore[call-arg]
    if random.random() < 0.5:
        found.append(random.choice([EqualTo, LessThan])(("n",), random.randrange(9)))
    return found


@pytest.mark.parametrize("name", TABLES)
def test_no_row_is_left_out(playground: Playground, name: str) -> None:
    info = described(playground, name)
    rows = stored(playground, info)
    values = [row["id"] for _, row in rows if row["id"] is not None]
    if name == "big":
        values = [Decimal(value) for value in values]
    values += [v + dt.timedelta(days=9) for v in values if isinstance(v, dt.date)] + [v + 1 for v in values if isinstance(v, int)]
    random, fewer = Random(name), 0
    for _ in range(300):
        filters = some_filters(random, values)
        bounds = bounds_of(filters, info.output_columns, schema_of(info))
        ids = [one.id for one in kept_partitions(info, bounds)] if info.partition else info.physical_ids
        ranges = [key_range(id_, handles) for id_ in ids for handles in handle_ranges(info, bounds)]
        read = {key for key, _ in rows if any(start <= key < end for start, end in ranges)}
        assert {key for key, row in rows if all(leaves(one, row) for one in filters)} <= read, filters
        fewer += len(read) < len(rows)
    assert (fewer > 20) == (name not in ("weights", "hidden"))


def test_ranges_of_values(playground: Playground) -> None:
    info = described(playground, "ints")
    assert info.pk_column is not None
    one = handle_ranges(info, {info.pk_column.id: Bounds(points=(1, 2, 9))})
    assert [start[-1] for start, _ in one] == [1, 2, 9]
    assert handle_ranges(info, {info.pk_column.id: Bounds(low=5, high=4)}) == ()
    assert handle_ranges(info, {}) == WHOLE
    whole = handle_ranges(info, {info.pk_column.id: Bounds(low=-(1 << 80), high=1 << 80)})
    assert [(len(start), len(end or b"")) for start, end in whole] == [(8, 9)]


def test_two_columns_of_a_key(playground: Playground) -> None:
    info = described(playground, "texts")
    first, second = info.columns[0].id, info.columns[1].id
    found = handle_ranges(info, {first: Bounds(points=(b"a", b"b")), second: Bounds(low=3, high=4)})
    assert len(found) == 2
    assert all(end is not None and start.startswith(end[:10]) for start, end in found)
    many = Bounds(points=tuple(range(10_001)))
    assert len(handle_ranges(info, {first: Bounds(points=(b"a",)), second: many})) == 1, "the second column is not looked at"


def test_a_column_that_the_user_gave_another_type_has_no_bounds(playground: Playground) -> None:
    info = described(playground, "ints")
    given = pa.schema([("id", pa.string())])
    assert bounds_of([EqualTo(("id",), "1")], info.output_columns, given) == {}
    assert bounds_of([EqualTo(("id",), True), In(("id",), ("x",))], info.output_columns, schema_of(info)) == {}
    assert list(bounds_of([EqualTo(("id",), 5), GreaterThan(("none",), 1)], info.output_columns, schema_of(info)).values()) == [
        Bounds(points=(5,))
    ]
