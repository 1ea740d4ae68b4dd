"""The state of a change log, and a cluster, against a real MariaDB and an SQLite file: what differs is found, named and repaired."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelog.loads import Loaded
from tests.support.changelog.sqllogs import SqlLog
from tests.support.changelog.typed_tables import ROWS, TYPES
from tests.support.consumer.fed_tables import apply
from tests.support.consumer.upstreams import events, playground_with
from tests.support.delivery.repairs import repaired
from tests.support.delivery.runs import tidemill
from tests.support.servers.databases import mariadb
from tests.support.servers.mariadb import MariaDb
from tidemill.consumer.order.progress import Progress
from tidemill.consumer.tables.sqlite import SqliteTables

__all__ = ["mariadb"]

pytestmark = pytest.mark.slow

Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def db(mariadb: MariaDb) -> MariaDb:
    mariadb.clear()
    return mariadb


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Everything is in the log."""
    sql = SqlLog()
    sql.run(*TYPES, *ROWS, "DELETE FROM app.types WHERE id = 4", "UPDATE app.strings SET v = 'yy' WHERE b = 2")
    return sql.write(tmp_path_factory.mktemp("log") / "log", partitions=3)


def diff(capsys: Capsys, *arguments: object) -> tuple[int, dict[str, Any]]:
    code, out, err = tidemill(capsys, "diff", "--output", "json", "--force-replicate", *arguments)
    assert code in (0, 1), err
    return code, json.loads(out)


def test_a_database_is_made_from_nothing_by_the_repairs_and_is_equal_then(db: MariaDb, log: str, tmp_path: Path, capsys: Capsys) -> None:
    fix = tmp_path / "fix.sql"
    db.run("CREATE DATABASE app")
    code, found = diff(capsys, "--log", log, "--sink-uri", db.uri, "--fix-sql", fix)
    assert code == 1
    assert {one["table"]: (one["problem"], one["missing"]) for one in found["tables"]} == {
        "app.types": ("is not downstream", 4),
        "app.strings": ("is not downstream", 5),
        "app.keyless": ("is not downstream", 4),
        "app.wide": ("is not downstream", 3),
    }
    repaired(db, fix)
    for chunk in (1, 2, 10_000):
        code, found = diff(capsys, "--log", log, "--sink-uri", db.uri, "--chunk-size", chunk)
        assert (code, found["equal"]) == (0, True), found
    assert sum(one["upstream_rows"] for one in found["tables"]) == sum(one["downstream_rows"] for one in found["tables"]) == 16


ROUNDS: tuple[tuple[tuple[str, ...], dict[str, dict[str, int]]], ...] = (
    (
        (
            "UPDATE app.types SET v = 'it''s \\\\ a\\nline', f = 0.1001, j = '{\"b\": [1, 2.5, \"y\"], \"a\": null}', x = 'bin ',"
            " ts = '2024-01-02 03:04:05.123457', dt = NULL WHERE id = 1",
            "UPDATE app.strings SET a = 'b' WHERE b = 1",
            "DELETE FROM app.keyless WHERE a = 1 LIMIT 1",
            "UPDATE app.wide a, app.wide b SET a.c = b.c WHERE a.a = 1 AND b.a = 2",
        ),
        {"types": {"different": 1}, "strings": {"missing": 1, "extra": 1}, "keyless": {"missing": 1}, "wide": {"different": 1}},
    ),
    (
        (
            "UPDATE app.types SET i = 0 WHERE i IS NULL",
            "UPDATE app.strings SET v = '' WHERE v IS NULL",
            "INSERT INTO app.keyless VALUES (NULL, NULL), (NULL, NULL)",
            "DELETE FROM app.wide",
        ),
        {"types": {"different": 3}, "strings": {"different": 1}, "keyless": {"extra": 2}, "wide": {"missing": 3}},
    ),
    (
        (
            "DELETE FROM app.types WHERE id < 0",
            "INSERT INTO app.types (id, e) VALUES (77, 'a')",
            "UPDATE app.types SET id = 78 WHERE id = 2",
            "UPDATE app.keyless SET b = 'zwei' WHERE a = 2",
        ),
        {"types": {"missing": 2, "extra": 2}, "keyless": {"missing": 1, "extra": 1}},
    ),
)


def test_every_change_is_found_named_and_repaired(db: MariaDb, log: str, tmp_path: Path, capsys: Capsys) -> None:
    fix = tmp_path / "fix.sql"
    diff(capsys, "--log", log, "--sink-uri", db.uri, "--fix-sql", fix)
    repaired(db, fix)
    for number, (statements, wanted) in enumerate(ROUNDS):
        db.run(*statements)
        code, found = diff(capsys, "--log", log, "--sink-uri", db.uri, "--fix-sql", fix, "--chunk-size", 1 + number)
        kinds = ("missing", "extra", "different")
        counts = {one["table"][4:]: {k: one[k] for k in kinds if one[k]} for one in found["tables"] if not one["equal"]}
        assert (code, counts) == (1, wanted)
        assert number or "-- differs in f, dt, ts, j, v, x\n" in fix.read_text()
        repaired(db, fix)
        code, found = diff(capsys, "--log", log, "--sink-uri", db.uri)
        assert code == 0, (found, fix.read_text())


def test_rows_that_swap_values_do_not_hide_each_other(db: MariaDb, log: str, tmp_path: Path, capsys: Capsys) -> None:
    """Sums that are linear (a CRC) would be the same."""
    fix = tmp_path / "fix.sql"
    diff(capsys, "--log", log, "--sink-uri", db.uri, "--fix-sql", fix)
    repaired(db, fix)
    db.run("UPDATE app.strings SET v = CASE b WHEN 1 THEN 'yy' ELSE 'x' END WHERE b IN (1, 2)")
    assert diff(capsys, "--log", log, "--sink-uri", db.uri, "--table", "app.strings")[0] == 1


def test_tables_and_columns_that_do_not_fit_are_named(db: MariaDb, log: str, tmp_path: Path, capsys: Capsys) -> None:
    fix = tmp_path / "fix.sql"
    diff(capsys, "--log", log, "--sink-uri", db.uri, "--fix-sql", fix)
    repaired(db, fix)
    db.run(
        "ALTER TABLE app.wide DROP COLUMN c", "CREATE TABLE app.more (a INT)", "DROP TABLE app.keyless", "ALTER TABLE app.types ADD own INT"
    )
    code, out, _ = tidemill(capsys, "diff", "--log", log, "--sink-uri", db.uri, "--check-struct-only", "--force-replicate")
    assert code == 1
    assert out.splitlines()[:3] == [
        "app.keyless: is not downstream",
        "app.wide: has no column c downstream",
        "app.more: is only downstream",
    ]
    assert tidemill(capsys, "diff", "--log", log, "--sink-uri", db.uri, "--table", "app.types")[0] == 0


def test_a_failure_ends_with_2(log: str, capsys: Capsys) -> None:
    code, _, err = tidemill(capsys, "diff", "--log", log, "--sink-uri", "mysql://root@127.0.0.1:1/")
    assert code == 2
    assert "127.0.0.1:1" in err
    assert tidemill(capsys, "diff", "--sink-uri", "mysql://root@127.0.0.1:1/")[0] == 2


def test_tables_that_were_there_before_the_log_come_from_its_loads(db: MariaDb, tmp_path: Path, capsys: Capsys) -> None:
    loaded = Loaded(tmp_path)
    fix = tmp_path / "fix.sql"
    for ts in (loaded.start, loaded.again, loaded.end):
        db.clear()
        diff(capsys, "--log", loaded.log, "--sink-uri", db.uri, "--fix-sql", fix, "--ts", ts)
        repaired(db, fix)
        truth = {name: len(table.rows) for name, table in loaded.sql.tables_at(ts).items()}
        assert {name: db.rows(f"SELECT COUNT(*) FROM {'.'.join(name)}")[0][0] for name in truth} == truth
        assert diff(capsys, "--log", loaded.log, "--sink-uri", db.uri, "--ts", ts)[0] == 0
    assert tidemill(capsys, "diff", "--log", loaded.log, "--sink-uri", db.uri, "--ts", loaded.start)[0] == 1


def test_without_a_load_only_rows_that_changed_are_judged(db: MariaDb, tmp_path: Path, capsys: Capsys) -> None:
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    sql.run("UPDATE t SET v = 22 WHERE id = 2", "DELETE FROM t WHERE id = 3", "INSERT INTO t VALUES (4, 4)")
    log = sql.write(tmp_path / "log")
    db.run("CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY, v INT)", "INSERT INTO app.t VALUES (1, 1), (2, 22), (4, 4)")
    assert tidemill(capsys, "diff", "--log", log, "--sink-uri", db.uri)[0] == 0
    db.run("INSERT INTO app.t VALUES (3, 3), (9, 9)", "UPDATE app.t SET v = 2 WHERE id = 2", "DELETE FROM app.t WHERE id IN (1, 4)")
    code, out, _ = tidemill(capsys, "diff", "--log", log, "--sink-uri", db.uri)
    assert code == 1
    assert out.splitlines()[0] == "app.t: 1 rows are missing, 1 rows are too many, 1 rows differ"
    assert "only rows that changed since the log began" in out


@pytest.mark.parametrize("more", [(), ("INSERT INTO app.p VALUES (5, 5)",)], ids=["an odd number of changes", "an even number"])
def test_rows_that_ddls_moved_between_partitions(more: tuple[str, ...], db: MariaDb, tmp_path: Path, capsys: Capsys) -> None:
    """TiDB tells nothing of the rows that it moves. Those of a table without a clustered key cannot be followed."""
    sql = SqlLog()
    parts = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"
    sql.run(f"CREATE TABLE p (id INT PRIMARY KEY, v INT) {parts}", f"CREATE TABLE n (id INT PRIMARY KEY NONCLUSTERED, v INT) {parts}")
    sql.run("CREATE TABLE x (id INT PRIMARY KEY, v INT)", "INSERT INTO x VALUES (15, 150)")
    for table in "pn":
        sql.run(f"INSERT INTO {table} VALUES (1, 1), (2, 2), (3, 3), (11, 11), (12, 12)", f"DELETE FROM {table} WHERE id = 2")
        split = "REORGANIZE PARTITION p0 INTO (PARTITION a VALUES LESS THAN (3), PARTITION b VALUES LESS THAN (10))"
        sql.run(f"ALTER TABLE {table} {split}", f"UPDATE {table} SET v = 33 WHERE id = 3", f"DELETE FROM {table} WHERE id = 1")
    sql.run("ALTER TABLE p EXCHANGE PARTITION p1 WITH TABLE x", "UPDATE x SET v = v + 1 WHERE id = 11", *more)
    log = sql.write(tmp_path / "log", told=True)
    db.run("CREATE DATABASE app", "CREATE TABLE app.p (id INT PRIMARY KEY, v INT)", "INSERT INTO app.p VALUES (3, 33), (15, 150)", *more)
    db.run("CREATE TABLE app.x (id INT PRIMARY KEY, v INT)", "INSERT INTO app.x VALUES (11, 12), (12, 12)", "CREATE TABLE app.n (id INT)")
    code, out, err = tidemill(capsys, "diff", "--log", log, "--sink-uri", db.uri)
    assert code == 0, out + err
    assert "no key in the log follows them: app.n" in out


def test_a_column_that_a_ddl_converted_is_left_out(db: MariaDb, tmp_path: Path, capsys: Capsys) -> None:
    sql = SqlLog()
    sql.run("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10), w INT)", "INSERT INTO t VALUES (1, '1', 1), (2, '2', 2)")
    sql.run("ALTER TABLE t MODIFY COLUMN v INT", "UPDATE t SET w = 3 WHERE id = 2")
    log = sql.write(tmp_path / "log")
    db.run("CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY, v INT, w INT)", "INSERT INTO app.t VALUES (1, 1, 1), (2, 2, 3)")
    code, out, _ = tidemill(capsys, "diff", "--log", log, "--sink-uri", db.uri)
    assert code == 0, out
    assert "app.t: v not compared" in out
    db.run("UPDATE app.t SET w = 9")
    assert tidemill(capsys, "diff", "--log", log, "--sink-uri", db.uri)[0] == 1


def test_an_sqlite_file_of_the_consumer(tmp_path: Path, capsys: Capsys) -> None:
    """It is compared at what the consumer has flushed, and only read."""
    playground = playground_with("create database app")
    for statement in (*TYPES, *ROWS):
        playground.execute(statement)
    file, ts = tmp_path / "tables.db", playground.cluster.oracle.next()
    tables = SqliteTables(file)
    apply(tables, events(playground, keyless=True))
    tables.commit(Progress(ts))
    sql = SqlLog.of(playground)
    log = sql.write(tmp_path / "log")
    given = ("--log", log, "--sink-uri", f"sqlite://{file}", "--tz", "UTC")
    code, found = diff(capsys, *given)
    assert (code, found["ts"]) == (0, ts), found
    tables.connection.execute("""UPDATE "app.types" SET n = '1.000000' WHERE id = 1""")
    tables.connection.execute("""DELETE FROM "app.keyless" WHERE a = 2""")
    code, found = diff(capsys, *given)
    assert (code, [one["table"] for one in found["tables"] if not one["equal"]]) == (1, ["app.keyless", "app.types"])
    tables.commit(Progress(ts))  # it is still the owner of the file
    tables.close()


@pytest.mark.spark
def test_on_spark_it_finds_the_same(db: MariaDb, log: str, tmp_path: Path, capsys: Capsys) -> None:
    fix = tmp_path / "fix.sql"
    diff(capsys, "--log", log, "--sink-uri", db.uri, "--fix-sql", fix)
    repaired(db, fix)
    db.run(
        "UPDATE app.wide SET c = 77 WHERE a = 3", "DELETE FROM app.keyless WHERE a = 1", "INSERT INTO app.strings VALUES ('new', 7, 'x')"
    )
    here = diff(capsys, "--log", log, "--sink-uri", db.uri, "--chunk-size", 3)
    on_spark = tmp_path / "spark.sql"
    code, found = diff(capsys, "--log", log, "--sink-uri", db.uri, "--chunk-size", 3, "--fix-sql", on_spark, "--master", "local[2]")
    assert (code, found) == here
    repaired(db, on_spark)
    assert diff(capsys, "--log", log, "--sink-uri", db.uri)[0] == 0
