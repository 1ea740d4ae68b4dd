"""What a DataFrame has of a change log: typed columns, JSON, raw changes; pushed filters; what is not there."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull, LessThanOrEqual
from pyspark.sql.types import DataType, DoubleType, LongType, StringType, StructField, StructType

from tests.support.changelog.loads import Loaded
from tests.support.changelog.logs import golden, golden_log
from tests.support.changelog.sqllogs import SqlLog
from tests.support.spark.frames import Stream, read, source
from tidemill.changelog import initial_load
from tidemill.changelog.history import load_history
from tidemill.changelog.initial_load import Plan, PlannedTable
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import open_storage
from tidemill.errors import ConfigError, LogError, SchemaError, StartTsOutOfLog
from tidemill.tso import when

ORDERS = "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20), price DECIMAL(12,2), at TIMESTAMP NULL, t TIME)"


def struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[int]]:
    """A log of four transactions, with a ts past each."""
    sql = SqlLog(ORDERS, "CREATE TABLE o (a INT)")
    ends = [
        sql.run("INSERT INTO t VALUES (1, 'a', 1.5, '2026-01-02 03:04:05', '-12:00:01'), (2, 'b', NULL, NULL, NULL)"),
        sql.run("UPDATE t SET price = 3 WHERE id = 1"),
        sql.run("INSERT INTO o VALUES (7)"),
        sql.run("DELETE FROM t WHERE id = 2"),
    ]
    return sql.write(tmp_path_factory.mktemp("made") / "log", partitions=2), ends


def test_typed_columns(made: tuple[str, list[int]]) -> None:
    log, ends = made
    rows = read(log, table="APP.T")
    assert [(r["id"], r["_change_type"], r["price"]) for r in rows] == [
        (1, "insert", Decimal("1.50")),
        (2, "insert", None),
        (1, "update_preimage", Decimal("1.50")),
        (1, "update_postimage", Decimal("3.00")),
        (2, "delete", None),
    ]
    first = rows[0]
    assert (first["at"], first["t"]) == (dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC), "-12:00:01")
    assert (first["_database"], first["_table"]) == ("app", "t")
    assert first["_start_ts"] < first["_commit_ts"] <= ends[0]
    assert first["_commit_timestamp"] == when(first["_commit_ts"])
    assert rows[2]["_commit_ts"] == rows[3]["_commit_ts"]
    (interval,) = {r["t"] for r in read(log, table="app.t", timeAs="interval", endingTs=str(ends[0])) if r["id"] == 1}
    assert interval == -dt.timedelta(hours=12, seconds=1)


def test_an_interval_and_pushed_filters(made: tuple[str, list[int]]) -> None:
    log, ends = made
    every = read(log, table="app.t")
    assert read(log, table="app.t", startingTs=str(ends[0]), endingTs=str(ends[1])) == every[2:4]
    pushed = read(log, GreaterThan(("_commit_ts",), ends[0]), LessThanOrEqual(("_commit_ts",), ends[1]), table="app.t")
    assert pushed == every[2:4]
    images = read(log, IsNotNull(("_change_type",)), In(("_change_type",), ("update_postimage", "delete")), table="app.t")
    assert images == every[3:]
    assert read(log, EqualTo(("_change_type",), "none"), table="app.t") == []
    assert read(log, EqualTo(("_table",), "o"), table="app.t") == []
    assert read(log, GreaterThan(("_commit_timestamp",), dt.datetime(2999, 1, 1, tzinfo=dt.UTC)), table="app.t") == []
    (row,) = read(log, EqualTo(("_table",), "o"), tables="app.*")
    assert json.loads(row["after"])["a"] == 7
    left = GreaterThan(("price",), Decimal(1))
    assert list(source(log, table="app.t").reader(StructType()).pushFilters([left])) == [left]


def test_only_some_columns(made: tuple[str, list[int]]) -> None:
    log, _ = made
    assert list(read(log, table="app.t", columns="Price,id")[0])[:3] == ["price", "id", "_change_type"]
    chosen = struct(_commit_ts=LongType(), id=LongType(), price=DoubleType(), none=StringType())
    assert [list(row.values())[1:] for row in read(log, table="app.t", schema=chosen)][:2] == [[1, 1.5, None], [2, None, None]]
    with pytest.raises(ConfigError, match=r"app\.t has no column prise; did you mean `price`\?"):
        read(log, table="app.t", columns="prise")
    with pytest.raises(SchemaError, match=r"app\.t as of ts \d+: column id is int32, which cannot be read as struct"):
        read(log, table="app.t", schema=struct(id=struct(a=LongType())))
    with pytest.raises(SchemaError, match=r"(?s)app\.t, column price: .* cannot be .*a type that has room for the column's values"):
        read(log, table="app.t", schema=struct(price=LongType()))


def test_changes_of_any_table_as_json(made: tuple[str, list[int]]) -> None:
    rows = read(made[0], tables="app.*")
    assert Counter((r["_table"], r["_change_type"]) for r in rows) == {
        ("t", "insert"): 2,
        ("t", "update"): 1,
        ("t", "delete"): 1,
        ("o", "insert"): 1,
    }
    (update,) = [r for r in rows if r["_change_type"] == "update"]
    assert json.loads(update["before"]) == {"id": 1, "name": "a", "price": "1.50", "at": "2026-01-02 03:04:05", "t": "-12:00:01"}
    assert json.loads(update["after"])["price"] == "3.00"
    assert {r["before"] for r in rows if r["_change_type"] == "insert"} == {None}
    assert read(made[0], tables="other.*") == []


def test_raw_changes(tmp_path: Path) -> None:
    log = str(golden_log(tmp_path / "log", partitions=3, segments=4))
    history = load_history(LogReader(log))
    known = history.snapshot(history.resolved_ts).known_ids
    got = Counter((r["table_id"], r["op"], r["commit_ts"], r["key"], r["value"], r["old_value"]) for r in read(log, rawChanges="true"))
    want = Counter((c.table_id, c.op, c.commit_ts, c.key, c.value, c.old_value) for c in golden().rows if c.table_id in known)
    assert not got - want
    assert sum(got.values()) > 0.9 * sum(want.values()), "copies of rows that DDLs make are left out"


def test_what_is_not_there(made: tuple[str, list[int]]) -> None:
    log, _ = made
    with pytest.raises(SchemaError, match=r"the log has no table app\.tt\n +Did you mean app\.t\?"):
        read(log, table="app.tt")
    with pytest.raises(StartTsOutOfLog, match="lies before it"):
        read(log, table="app.t", startingTs=str(1 << 41))
    with pytest.raises(StartTsOutOfLog, match=r"complete up to .* only, not up to endingTs"):
        read(log, table="app.t", endingTs=str(1 << 62))
    with pytest.raises(ConfigError, match="has the columns"):
        read(log, tables="app.*", schema=struct(id=LongType()))


def test_a_column_that_the_dataframe_has_too(tmp_path: Path) -> None:
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY, _Table INT)")
    log = sql.write(tmp_path / "log")
    with pytest.raises(ConfigError, match=r"app\.t has a column _Table, which the DataFrame has too"):
        read(log, table="app.t")
    assert read(log, table="app.t", columns="id") == []


def test_older_versions_are_read_into_the_newest_columns(tmp_path: Path) -> None:
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY, a INT, gone INT)")
    sql.run("INSERT INTO t VALUES (1, 5, 9)")
    sql.run("TRUNCATE TABLE t", "INSERT INTO t VALUES (4, 4, 4)")
    sql.run("ALTER TABLE t ADD COLUMN b VARCHAR(9) DEFAULT 'x'", "ALTER TABLE t DROP COLUMN gone")
    sql.run("ALTER TABLE t MODIFY COLUMN a BIGINT", "ALTER TABLE t RENAME COLUMN a TO c", "INSERT INTO t VALUES (2, 1099511627776, 'y')")
    log = sql.write(tmp_path / "log")
    found = [(r["id"], r["c"], r["b"]) for r in read(log, table="app.t")]
    found = sorted(set(found), key=lambda row: row[0])  # a DDL may write rows again
    assert found == [(1, None, None), (2, 1 << 40, "y"), (4, 4, None)], "a column is followed by its id, until TRUNCATE makes another table"


def test_every_table_of_the_golden_log(tmp_path: Path) -> None:
    """Rows as JSON are those of TiCDC's mounter, column by column, whatever DDLs lie between them."""
    log = str(golden_log(tmp_path / "log", partitions=3, segments=5))
    rows = read(log, tables="*.*")
    assert len(rows) > 1000
    got = Counter((r["_database"], r["_table"], r["_commit_ts"], r["_change_type"]) for r in rows)
    assert sum(got.values()) == len(rows)
    for row in rows:
        for image in (row["before"], row["after"]):
            assert image is None or isinstance(json.loads(image), dict)


def test_tables_as_of_a_ts_and_the_changes_after_it(tmp_path: Path) -> None:
    loaded = Loaded(tmp_path)
    changes = read(loaded.log, tables="*.*")
    rows = read(loaded.log, tables="*.*", initialSnapshot="true")
    first = [json.loads(r["after"]) for r in rows if r["_commit_ts"] == loaded.start and r["_table"] == "t"]
    assert [(r["id"], r["v"], r["d"]) for r in first] == [(1, "one", "1.00"), (2, "two", "2.00"), (3, None, "3.00")]
    again = [json.loads(r["after"])["v"] for r in rows if r["_commit_ts"] == loaded.again]
    assert again == ["uno", "two", None]
    assert {r["_change_type"] for r in rows if r["_commit_ts"] in (loaded.start, loaded.again)} == {"insert"}
    assert len(rows) == len(changes) + 3 + 2 + 1 + 1 + 3
    stream = Stream(loaded.log, tables="*.*", initialSnapshot="true")
    batches = stream.batches()
    assert sorted(map(str, (r for batch in batches for r in batch))) == sorted(map(str, rows))
    assert {r["_commit_ts"] for r in batches[0]} == {loaded.start}, "the tables are a batch of their own"
    typed = read(loaded.log, table="app.t", initialSnapshot="true")
    assert [r["id"] for r in typed if r["_commit_ts"] == loaded.start] == [1, 2, 3]
    assert read(loaded.log, tables="*.*", startingTs=str(loaded.start)) == changes


def test_tables_that_are_still_being_read(tmp_path: Path) -> None:
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    log = sql.write(tmp_path / "log")
    plan = Plan(sql.start_ts, (PlannedTable(1, "t", ((b"a", b"b"),)),))
    initial_load.write_plan(open_storage(log), plan)
    with pytest.raises(LogError, match="still being read"):
        read(log, table="app.t", initialSnapshot="true")
    assert Stream(log, table="app.t", initialSnapshot="true").batches() == [], "a stream waits"
    with pytest.raises(LogError, match="1 parts are missing"):
        Stream(log, table="app.t", initialSnapshot="true", available_now=True).batches()
    assert Stream(log, table="app.t", available_now=True).batches() == [], "only initialSnapshot needs them"


def test_a_log_without_tables_is_no_table_without_rows(tmp_path: Path) -> None:
    log = SqlLog("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)").write(tmp_path / "log")
    for given in ({"table": "app.t"}, {"tables": "app.*"}):
        with pytest.raises(LogError, match=r"(?s)no tables as of its start.*--snapshot"):
            read(log, initialSnapshot="true", **given)
        with pytest.raises(LogError, match="no tables as of its start"):
            Stream(log, initialSnapshot="true", **given)
    stream = Stream(log, table="app.t", initialSnapshot="true", startingTs="latest")
    assert stream.batches() == [], "from now on there is nothing to miss"


@pytest.mark.parametrize(
    ("ddls", "found"),
    [
        (("DROP COLUMN a", "ADD COLUMN a INT DEFAULT 7"), {"a": None}),
        (("DROP COLUMN a", "ADD COLUMN a VARCHAR(9)"), {"a": None}),
        (("RENAME COLUMN a TO c", "ADD COLUMN a INT DEFAULT 7"), {"a": None, "c": 10}),
        (("RENAME COLUMN a TO c", "RENAME COLUMN b TO a", "RENAME COLUMN c TO b"), {"a": 100, "b": 10}),
        (("MODIFY COLUMN a VARCHAR(9)",), {"a": "10"}),
        (("MODIFY COLUMN a VARCHAR(9)", "MODIFY COLUMN a INT"), {"a": 10}),
        (("CHANGE COLUMN a c VARCHAR(9)", "ADD COLUMN a INT"), {"a": None, "c": "10"}),
    ],
)
def test_a_column_has_its_own_values_whatever_its_name(tmp_path: Path, ddls: tuple[str, ...], found: dict[str, object]) -> None:
    sql = SqlLog("CREATE TABLE t (k INT PRIMARY KEY, a INT, b INT)")
    sql.run("INSERT INTO t VALUES (1, 10, 100)", *(f"ALTER TABLE t {ddl}" for ddl in ddls))
    (row,) = read(sql.write(tmp_path / "log", told=True), table="app.t")
    assert {name: row[name] for name in found} == found
