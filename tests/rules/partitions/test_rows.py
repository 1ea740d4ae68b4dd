"""Rows of partitions are found in typed columns as the reference finds them in cells, and as the playground's TiDB places them."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.lake.lakes import version_of
from tidemill.errors import SchemaError
from tidemill.rules.partitions import Locator, Partitioning, PartitionRows
from tidemill.sinks.lake.shapes import lake_table
from tidemill.tidb.names import folded
from tidemill.tidb.schema.model import TableInfo

PARTS = (
    "RANGE (a) (PARTITION p VALUES LESS THAN (-3), PARTITION q VALUES LESS THAN (4), PARTITION r VALUES LESS THAN MAXVALUE)",
    """RANGE COLUMNS (b, a) (PARTITION p VALUES LESS THAN ('c', 2), PARTITION q VALUES LESS THAN ('f', 0),
 PARTITION r VALUES LESS THAN (MAXVALUE, MAXVALUE))""",
    "RANGE (YEAR(d)) (PARTITION p VALUES LESS THAN (2021), PARTITION q VALUES LESS THAN (2023), PARTITION r VALUES LESS THAN MAXVALUE)",
    "RANGE (UNIX_TIMESTAMP(t)) (PARTITION p VALUES LESS THAN (1600000000), PARTITION q VALUES LESS THAN MAXVALUE)",
    "LIST COLUMNS (b) (PARTITION p VALUES IN ('a', NULL), PARTITION q VALUES IN ('b', 'c', 'd'), PARTITION r VALUES IN ('e', 'f', 'g'))",
    "HASH (a + 7) PARTITIONS 4",
    "KEY (b, u) PARTITIONS 3",
)  # fmt: skip


def _info(parts: str) -> TableInfo:
    sql = SqlLog(f"CREATE TABLE x (a INT, b VARCHAR(9), d DATE, t TIMESTAMP(3) NULL, u BIGINT UNSIGNED) PARTITION BY {parts}")
    return version_of(sql, "x").info


def _rows(random: Random, count: int) -> list[dict[str, object]]:
    def one(*values: object) -> object:
        return None if random.random() < 0.1 else random.choice(values)

    return [
        {
            "a": one(*range(-9, 9)),
            "b": one(*(letter.encode() for letter in "abcdefg")),
            "d": one(*(f"20{year}-0{month}-15" for year in range(19, 26) for month in (1, 7))),
            "t": one(*(f"20{year}-06-15 11:22:33.456" for year in range(19, 26))),
            "u": one(0, 5, 1 << 63, (1 << 64) - 1),
        }
        for _ in range(count)
    ]


def _typed(info: TableInfo, rows: list[dict[str, object]]) -> pa.Table:
    from tidemill.tidb.columns.forms import column_type
    from tidemill.tidb.columns.values import typed_value

    columns = []
    for column in info.output_columns:
        kind = column_type(column)
        values = [typed_value(column, kind, row[column.name]) for row in rows]  # type: ignore[arg-type]
        columns.append(pa.array([v.decode() if isinstance(v, bytes) else v for v in values], kind.arrow))
    return pa.table(columns, [column.name for column in info.output_columns])


@pytest.mark.parametrize("parts", PARTS)
def test_the_mask_is_what_the_locator_says_of_each_row(parts: str) -> None:
    info, random = _info(parts), Random(parts)
    assert info.partition is not None
    partitioning = Partitioning.of(info.partition)
    locator = Locator(partitioning, info.output_columns)
    rows = _rows(random, 500)
    found = [locator.find({folded(name): cell for name, cell in row.items()}) for row in rows]  # type: ignore[misc]
    assert len(set(found)) > 1
    for names in ({"p"}, {"q", "r"}, {"p0", "p2"}):
        finder = PartitionRows(partitioning, info.output_columns, frozenset(names))
        assert finder.mask(_typed(info, rows)).to_pylist() == [one in names for one in found]
    assert PartitionRows(partitioning, info.output_columns, frozenset("p")).mask(_typed(info, [])).to_pylist() == []


@pytest.mark.parametrize("parts", [one for one in PARTS if "UNIX_TIMESTAMP" not in one])  # the playground does not have that function
def test_rows_lie_where_the_upstream_put_them(parts: str) -> None:
    sql = SqlLog(f"CREATE TABLE x (a INT, b VARCHAR(9), d DATE, t TIMESTAMP(3) NULL, u BIGINT UNSIGNED) PARTITION BY {parts}")
    random = Random(parts)

    def literal(cell: object) -> str:
        text = cell.decode() if isinstance(cell, bytes) else cell
        return "NULL" if text is None else f"'{text}'" if isinstance(text, str) else str(text)

    rows = _rows(random, 60)
    for row in rows:
        sql.run("INSERT INTO x VALUES (" + ", ".join(map(literal, row.values())) + ")")
    before = version_of(sql, "x").info
    assert before.partition is not None
    name = before.partition.definitions[1].name
    sql.run(f"ALTER TABLE x TRUNCATE PARTITION {name}")
    after = version_of(sql, "x").info
    left = sum(len(table.rows) for key, table in sql.tables_at(sql.run()).items() if key[1] == "x")
    gone = PartitionRows.gone(before, after)
    assert gone.names == {name}
    assert sum(gone.mask(_typed(before, rows)).to_pylist()) == len(rows) - left


def test_a_column_that_decides_and_is_not_there_is_named() -> None:
    info = _info(PARTS[2])
    assert info.partition is not None
    finder = PartitionRows(Partitioning.of(info.partition), info.output_columns, frozenset("p"))
    with pytest.raises(SchemaError, match="the column d decides"):
        finder.mask(_typed(info, []).drop_columns(["d"]))


def test_descriptions_of_a_lake_keep_the_names(tmp_path: object) -> None:
    sql = SqlLog("CREATE TABLE y (`A b` INT PRIMARY KEY) PARTITION BY HASH (`A b`) PARTITIONS 2")
    version = version_of(sql, "y")
    assert lake_table(version).fields.names == ["A b"]
    assert version.info.partition is not None
    finder = PartitionRows(Partitioning.of(version.info.partition), version.info.output_columns, frozenset({"p1"}))
    assert finder.mask(pa.table({"A b": pa.array([1, 2, 3, -1, None], pa.int32())})).to_pylist() == [True, False, True, True, False]
