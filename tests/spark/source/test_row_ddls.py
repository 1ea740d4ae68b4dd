"""DDLs that change rows without changes: a stream of a table ends at them, passes over them, or tells that all rows are gone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.spark.frames import Row, Stream, read, source
from tidemill.errors import ConfigError, RowsChanged, SchemaChanged
from tidemill.sinks.base import no_fence_check
from tidemill.sinks.lake.base import Stamp
from tidemill.spark.apply import Target, apply_rows
from tidemill.spark.source.frame import META

RANGE = "PARTITION BY RANGE (k) (PARTITION a VALUES LESS THAN (5), PARTITION b VALUES LESS THAN (10))"
EMPTYING = ["TRUNCATE TABLE t", "DROP TABLE t", "RENAME TABLE t TO u", "DROP DATABASE app", "RENAME TABLE t TO u, o TO t"]
OTHERS = [
    "ALTER TABLE p DROP PARTITION a",
    "ALTER TABLE p TRUNCATE PARTITION a",
    "ALTER TABLE p EXCHANGE PARTITION a WITH TABLE o",
]


def _made(*ddls: str) -> SqlLog:
    sql = SqlLog("CREATE TABLE t (k INT PRIMARY KEY, v INT)", f"CREATE TABLE p (k INT PRIMARY KEY, v INT) {RANGE}")
    sql.run("CREATE TABLE o (k INT PRIMARY KEY, v INT)")
    sql.run(*(f"INSERT INTO {name} VALUES (1, 1), (2, 2)" for name in "tpo"), *ddls)
    return sql


def _keys(batches: list[list[Row]]) -> list[list[int]]:
    return [[row["k"] for row in batch] for batch in batches]


@pytest.mark.parametrize("ddl", [*EMPTYING, *OTHERS])
def test_a_stream_ends_there_until_somebody_has_seen_to_it(tmp_path: Path, ddl: str) -> None:
    log = _made(ddl).write(tmp_path / "log")
    for table in ("t", "p", "o"):
        stream = Stream(log, table=f"app.{table}")
        touched = f" {table} " in f"{ddl} ".replace(",", " ,") or "DATABASE" in ddl
        if not touched:
            assert _keys(stream.batches()) == [[1, 2]]
            continue
        assert _keys([stream.batch() or []]) == [[1, 2]], "what lies before the DDL is read"
        for again in (stream, Stream(log, stream.at, table=f"app.{table}")):
            with pytest.raises(RowsChanged, match=r"(?s)by a DDL at \d+ .*no change says so: (TRUNCATE|DROP|RENAME|ALTER).*onDdl=ignore"):
                again.batch()
        assert Stream(log, stream.at, table=f"app.{table}", onDdl="ignore").batches() == []


@pytest.mark.parametrize("ddl", EMPTYING[:4])
def test_all_rows_go_is_a_row(tmp_path: Path, ddl: str) -> None:
    log = _made(ddl).write(tmp_path / "log")
    stream = Stream(log, table="app.t", onDdl="rows")
    rows = [row for batch in stream.batches() for row in batch]
    assert [(row["_change_type"], row["k"]) for row in rows] == [("insert", 1), ("insert", 2), ("truncate", None)]
    last = rows[-1]
    assert (last["_database"], last["_table"]) == ("app", "t")
    assert last["_commit_ts"] > rows[0]["_commit_ts"]
    assert [row["_change_type"] for row in read(log, table="app.t", onDdl="rows")][-1:] == ["truncate"]
    assert {row["_change_type"] for row in read(log, table="app.t")} == {"insert"}, "a batch without the option goes on"


def test_what_a_row_cannot_tell_ends_a_query_with_rows_too(tmp_path: Path) -> None:
    log = _made(OTHERS[0]).write(tmp_path / "log")
    stream = Stream(log, table="app.p", onDdl="rows")
    assert _keys([stream.batch() or []]) == [[1, 2]]
    with pytest.raises(RowsChanged, match="the rows of a partition are gone"):
        stream.batch()
    with pytest.raises(RowsChanged, match="the rows of a partition are gone"):
        read(log, table="app.p", onDdl="error")


def test_rows_that_come_back(tmp_path: Path) -> None:
    sql = _made("DROP TABLE t", "RECOVER TABLE t")
    stream = Stream(sql.write(tmp_path / "log"), table="app.t", onDdl="rows")
    assert [row["_change_type"] for row in stream.batch() or []] == ["insert", "insert", "truncate"]
    with pytest.raises(RowsChanged, match=r"rows come back, by a DDL .*RECOVER TABLE"):
        stream.batch()


@pytest.mark.parametrize(
    "ddl", ["ADD COLUMN b INT DEFAULT 7", "ADD COLUMN b INT NOT NULL", "MODIFY COLUMN v INT, ADD COLUMN b INT DEFAULT 7"]
)
def test_a_column_with_a_value_in_older_rows(tmp_path: Path, ddl: str) -> None:
    sql, folder = _made(), tmp_path / "log"
    early = Stream(sql.write(folder), table="app.t", schemaChangePolicy="restart")
    left_out = Stream(sql.write(folder), table="app.t", schemaChangePolicy="addColumns")
    assert _keys(early.batches()) == _keys(left_out.batches()) == [[1, 2]]
    sql.run(f"ALTER TABLE t {ddl}", "INSERT INTO t VALUES (3, 3, 3)")
    log = sql.write(folder)
    for stream in (early, left_out):
        stream.reader._stream.planner.reader.refresh()
    with pytest.raises(SchemaChanged, match="column b was added"):
        early.batches()
    assert _keys(left_out.batches()) == [[3]], "it does not have the column"
    for stream, policy in ((early, "restart"), (left_out, "addColumns")):
        with pytest.raises(RowsChanged, match=r"rows have a value in the new column b.*ADD COLUMN"):
            Stream(log, stream.at, table="app.t", schemaChangePolicy=policy).batches()
        assert _keys(Stream(log, stream.at, table="app.t", schemaChangePolicy=policy, onDdl="ignore").batches()) in ([[3]], [])
    fresh = Stream(log, table="app.t")
    assert _keys([fresh.batch() or []]) == [[1, 2]]
    with pytest.raises(RowsChanged, match="rows have a value in the new column b"):
        fresh.batch()


def test_values_that_a_ddl_rounds(tmp_path: Path) -> None:
    sql = SqlLog("CREATE TABLE t (k INT PRIMARY KEY, a DATETIME(3))")
    sql.run("INSERT INTO t VALUES (1, '2024-01-01 00:00:00.5')", "ALTER TABLE t MODIFY COLUMN a DATETIME")
    stream = Stream(sql.write(tmp_path / "log", told=True), table="app.t")
    assert _keys([stream.batch() or []]) == [[1]]
    with pytest.raises(RowsChanged, match=r"values of column a are rounded, by a DDL .*MODIFY COLUMN"):
        stream.batch()


def test_a_type_that_cannot_be_read_is_a_change_of_columns(tmp_path: Path) -> None:
    sql, folder = _made(), tmp_path / "log"
    stream = Stream(sql.write(folder), table="app.t")
    assert _keys(stream.batches()) == [[1, 2]]
    sql.run("ALTER TABLE t DROP COLUMN v", "ALTER TABLE t ADD COLUMN v VECTOR(2)")
    sql.write(folder)
    stream.reader._stream.planner.reader.refresh()
    with pytest.raises(SchemaChanged, match="column v was dropped"):
        stream.batches()


def test_the_option_is_for_typed_columns(tmp_path: Path) -> None:
    log = _made().write(tmp_path / "log")
    with pytest.raises(ConfigError, match="option onDdl is for typed columns"):
        source(log, tables="app.*", onDdl="rows").schema()
    with pytest.raises(ConfigError, match="option onDdl: 'truncate' is not one of error, ignore, rows"):
        source(log, table="app.t", onDdl="truncate").schema()


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("lake", ["delta://{0}/lake", "iceberg://c/?warehouse=file://{0}/ice&catalog-uri=sqlite:///{0}/catalog.db"])
def test_a_table_that_follows_the_stream_is_emptied(tmp_path: Path, lake: str, at_once: bool) -> None:
    sql = _made("UPDATE t SET v = 9 WHERE k = 2", "TRUNCATE TABLE t", "INSERT INTO t VALUES (2, 5), (7, 7)", "TRUNCATE TABLE t")
    sql.run("INSERT INTO t VALUES (3, 3)", "INSERT INTO t VALUES (4, 4)")
    log = sql.write(tmp_path / "log")
    stream = Stream(log, table="app.t", onDdl="rows", **({} if at_once else {"maxRowsPerTrigger": "1"}))
    target = Target(lake.format(tmp_path), "app", "t", ("k",))
    for number, batch in enumerate(stream.batches(), start=1):
        changes = pa.Table.from_pylist(batch, schema=pa.schema([("k", pa.int32()), ("v", pa.int32()), *META]))
        apply_rows(target, target.open(), changes, Stamp("q", number, 0, no_fence_check))
    tables = target.open()
    rows = [row for found in tables.read(tables.place("app", "t")) for row in found.to_pylist()]
    assert sorted((row["k"], row["v"]) for row in rows) == [(3, 3), (4, 4)]
