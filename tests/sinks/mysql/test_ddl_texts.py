"""The text of DDLs into a MariaDB: names in other letters than the catalogue's, escapes, times, tables like others, by the same statements
in a playground."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.changelog.told_otherwise import telling
from tests.support.delivery.database_runs import FORCED, delivered, hurried, wrong
from tests.support.servers.mariadb import MariaDb
from tidemill.errors import SinkError
from tidemill.sinks.mysql.session import DDL_SQL_MODE, LENIENT, STRICT

FIRST = ("CREATE TABLE T1 (id INT PRIMARY KEY, v INT)", "INSERT INTO t1 VALUES (1, 1)")


@pytest.fixture
def db(mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch) -> MariaDb:
    hurried(monkeypatch)
    mariadb.clear()
    mariadb.run("CREATE DATABASE app CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")  # it is older than the log
    return mariadb


@pytest.mark.slow
@pytest.mark.parametrize(
    "statements",
    [
        ("ALTER TABLE t1 ADD COLUMN x INT DEFAULT 3",),
        ("ALTER TABLE APP.t1 ADD INDEX i (V)",),
        ("TRUNCATE TABLE t1", "INSERT INTO T1 VALUES (7, 7)"),
        ("CREATE TABLE other LIKE t1", "INSERT INTO other VALUES (2, 2)"),
        ("CREATE VIEW w AS SELECT t1.id FROM t1", "INSERT INTO t1 VALUES (2, 2)"),
        ("RENAME TABLE t1 TO T2", "INSERT INTO t2 VALUES (2, 2)"),
        ("ALTER TABLE t1 RENAME TO t1x", "INSERT INTO T1X VALUES (2, 2)"),
        (
            "CREATE TABLE Parts (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION P0 VALUES LESS THAN (5), PARTITION p1 VALUES LESS "
            "THAN (9))",
            "INSERT INTO parts VALUES (1), (6)",
            "ALTER TABLE PARTS TRUNCATE PARTITION p0",
            "ALTER TABLE parts DROP PARTITION P1",
        ),
        ("DROP TABLE t1", "CREATE TABLE t1 (id INT PRIMARY KEY, v INT)", "INSERT INTO T1 VALUES (8, 8)"),
    ],
)
def test_names_in_any_letters_are_those_of_the_catalogue(db: MariaDb, tmp_path: Path, statements: tuple[str, ...]) -> None:
    sql = SqlLog()
    sql.run(*FIRST, *statements)
    delivered(sql.write(tmp_path / "log"), db.uri)
    assert not list(wrong(db, sql))


@pytest.mark.slow
def test_a_database_in_other_letters_is_dropped(db: MariaDb, tmp_path: Path) -> None:
    sql = SqlLog()
    for value in (1, 2):
        sql.run("CREATE DATABASE Shop", "CREATE TABLE shop.T (id INT PRIMARY KEY)", f"INSERT INTO SHOP.t VALUES ({value})")
        if value == 1:
            sql.run("DROP DATABASE shop")
    delivered(sql.write(tmp_path / "log"), db.uri)
    assert db.rows("SELECT * FROM Shop.T") == [(2,)]


@pytest.mark.slow
def test_routes_take_the_letters_of_the_catalogue(db: MariaDb, tmp_path: Path) -> None:
    sql = SqlLog()
    sql.run(*FIRST, "ALTER TABLE t1 ADD COLUMN x INT DEFAULT 3", "INSERT INTO t1 VALUES (2, 2, 2)")
    toml = FORCED + "[[sink.dispatchers]]\nmatcher = ['app.*']\ntarget-table = '{table}_r'\n"
    delivered(sql.write(tmp_path / "log"), db.uri, toml)
    assert db.rows("SELECT * FROM app.T1_r ORDER BY id") == [(1, 1, 3), (2, 2, 2)]


@pytest.mark.slow
def test_escapes_mean_downstream_what_they_mean_upstream(db: MariaDb, tmp_path: Path) -> None:
    sql = SqlLog()
    sql.run(
        r"CREATE TABLE e (id INT PRIMARY KEY, e ENUM('a\\b', '\\', 'it''s', '%\\_') DEFAULT '\\', s SET('x\\y', 'z') COMMENT 'c\\d\'') "
        r"COMMENT 'tab\\le'",
        r"INSERT INTO e VALUES (1, 'a\\b', 'x\\y,z'), (2, '\\', NULL), (3, 'it''s', 'z'), (4, '%\\_', '')",
        r"ALTER TABLE e MODIFY COLUMN e ENUM('a\\b', '\\', 'it''s', '%\\_', 'new\\') COMMENT '\\'",
        r"INSERT INTO e VALUES (5, 'new\\', 'z')",
    )
    delivered(sql.write(tmp_path / "log"), db.uri)
    assert not list(wrong(db, sql))
    columns = dict(db.rows("SELECT column_name, column_comment FROM information_schema.columns WHERE table_schema = 'app'"))
    assert columns == {"id": "", "e": "\\", "s": "c\\d'"}
    assert db.rows("SELECT table_comment FROM information_schema.tables WHERE table_schema = 'app'") == [("tab\\le",)]


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["", "?time-zone=Europe/Paris", "?time-zone=-03:30"])
def test_older_rows_have_the_time_that_they_have_upstream(db: MariaDb, tmp_path: Path, zone: str) -> None:
    """MariaDB has no time zone tables: the offset stands for a zone."""
    sql = SqlLog()
    sql.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    for number, kind in enumerate(("DATETIME", "DATETIME(3)", "DATETIME(6)", "TIMESTAMP", "TIMESTAMP(2)", "TIMESTAMP(6)")):
        digits = kind.partition("(")[2].rstrip(")")
        sql.run(f"ALTER TABLE t ADD COLUMN c{number} {kind} NOT NULL DEFAULT CURRENT_TIMESTAMP({digits})")
    delivered(sql.write(tmp_path / "log"), db.uri + zone)
    assert not list(wrong(db, sql))


@pytest.mark.slow
@pytest.mark.not_tidb("it knows all zones by itself")
def test_a_zone_that_the_server_lacks_is_an_error_with_its_cure_where_its_offset_is_not_enough(db: MariaDb, tmp_path: Path) -> None:
    sql = SqlLog()
    sql.run("CREATE TABLE t (id INT PRIMARY KEY)")
    sql.run(*(f"ALTER TABLE t ADD COLUMN c{month} TIMESTAMP DEFAULT '2020-0{month}-01 00:00:00'" for month in (1, 7)))
    with pytest.raises(SinkError, match="does not know the time zone America/New_York") as caught:
        delivered(sql.write(tmp_path / "log"), db.uri + "?time-zone=America/New_York")
    assert "mysql_tzinfo_to_sql" in caught.value.hint
    assert "time-zone=" in caught.value.hint


@pytest.mark.slow
def test_a_table_like_one_that_is_not_delivered_is_made(db: MariaDb, tmp_path: Path) -> None:
    sql = SqlLog()
    sql.run("CREATE TABLE hidden (id INT PRIMARY KEY, v INT)", "CREATE TABLE t LIKE hidden", "INSERT INTO t VALUES (1, 1)")
    delivered(sql.write(tmp_path / "log"), db.uri, FORCED + "[filter]\nrules = ['app.t']\n")
    assert db.rows("SELECT * FROM app.t") == [(1, 1)]


@pytest.mark.slow
def test_what_tidb_does_not_check_is_not_checked_downstream(db: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CHECK, which TiDB ignores by default, in each place of a statement; REFERENCES of a column, of which it makes no foreign key."""
    sql = SqlLog()
    run = telling(monkeypatch, sql)
    sql.run("CREATE TABLE p (id INT PRIMARY KEY)")
    columns = "id INT PRIMARY KEY, v INT CHECK (v > 5) NOT NULL, w INT REFERENCES p (id)"
    run("CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL, w INT)", f"CREATE TABLE t ({columns}, CONSTRAINT c CHECK (id > 5))")
    sql.run("INSERT INTO t VALUES (1, 1, 1)")
    run("ALTER TABLE t ADD COLUMN x INT", "ALTER TABLE t ADD COLUMN x INT CHECK (x > 5)")
    sql.run("INSERT INTO t VALUES (2, 2, 2, 2)", "DROP TABLE p")
    delivered(sql.write(tmp_path / "log"), db.uri)
    assert not list(wrong(db, sql))
    assert not db.rows("SELECT 1 FROM information_schema.referential_constraints WHERE constraint_schema = 'app'")


@pytest.mark.slow
def test_a_foreign_key_may_refer_to_a_key_that_is_not_unique(db: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = SqlLog()
    sql.run("CREATE TABLE p (id INT PRIMARY KEY, v INT, KEY (v))")
    made = "CREATE TABLE c (id INT PRIMARY KEY, v INT"
    telling(monkeypatch, sql)(made + ")", f"{made}, CONSTRAINT f FOREIGN KEY (v) REFERENCES p (v))")
    sql.run("INSERT INTO c VALUES (1, 1)")
    delivered(sql.write(tmp_path / "log"), db.uri)
    assert not list(wrong(db, sql))


@pytest.mark.slow
def test_fractions_are_rounded_as_upstream(db: MariaDb) -> None:
    for setting in (STRICT.decode(), LENIENT.decode(), f"SET SESSION sql_mode = {DDL_SQL_MODE}"):
        db.run(
            setting, "DROP TABLE IF EXISTS app.t", "CREATE TABLE app.t (a TIME(6), b DATETIME(6))",
            "INSERT INTO app.t VALUES ('00:00:00.999999', '2020-01-01 00:00:00.999999')",
            "ALTER TABLE app.t MODIFY COLUMN a TIME, MODIFY COLUMN b DATETIME",
        )  # fmt: skip
        assert db.rows("SELECT CAST(a AS CHAR), CAST(b AS CHAR) FROM app.t") == [("00:00:01", "2020-01-01 00:00:01")]
