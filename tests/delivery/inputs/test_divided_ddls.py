"""DDLs that are delivered as others: into a MariaDB, and in messages."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.database_runs import FORCED, delivered, hurried
from tests.support.delivery.messages import sent_into
from tests.support.servers.mariadb import MariaDb, mariadb  # noqa: F401 – a fixture
from tidemill.changefeed.replay import replay
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings

SHARED = "[[sink.dispatchers]]\nmatcher = ['sales.*', 'crm.*']\ntarget-schema = 'archive'\ntarget-table = '{schema}_{table}'\n"
TWO_SOURCES = (
    "CREATE DATABASE sales", "CREATE DATABASE crm", "CREATE TABLE sales.orders (id INT PRIMARY KEY)",
    "CREATE TABLE crm.people (id INT PRIMARY KEY)", "CREATE TABLE crm.calls (id INT PRIMARY KEY)",
    "CREATE VIEW crm.known AS SELECT id FROM crm.people", "INSERT INTO sales.orders VALUES (1)", "INSERT INTO crm.people VALUES (1)",
)  # fmt: skip


@pytest.fixture
def db(mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch) -> MariaDb:  # noqa: F811
    hurried(monkeypatch)
    mariadb.clear()
    return mariadb


def tables(db: MariaDb) -> set[str]:
    return {".".join(row) for row in db.rows("SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN "
                                             "('archive', 'sales', 'crm', 'app', 'other')")}  # fmt: skip


def queries(log: str, out: Path, toml: str) -> list[str]:
    config = parse_config(toml)
    replay(log, Settings("test", config.sink_uri(f"messages://{out}?protocol=open-protocol"), config, UTC))
    return [body["q"] for _, _, head, body in sent_into(out) if head["t"] == 2]


@pytest.mark.slow
def test_the_drop_of_one_of_two_sources_drops_what_came_from_it(db: MariaDb, tmp_path: Path) -> None:
    sql = SqlLog()
    sql.run(*TWO_SOURCES, "DROP DATABASE crm", "INSERT INTO sales.orders VALUES (2)")
    log = sql.write(tmp_path / "log")
    delivered(log, db.uri, SHARED)
    assert tables(db) == {"archive.sales_orders"}
    assert db.rows("SELECT id FROM archive.sales_orders ORDER BY id") == [(1,), (2,)]
    drops = [query for query in queries(log, tmp_path / "out", SHARED) if query.startswith("DROP")]
    assert drops == ["DROP VIEW `archive`.`crm_known`", "DROP TABLE `archive`.`crm_people`", "DROP TABLE `archive`.`crm_calls`"]


@pytest.mark.slow
def test_the_drop_of_the_last_source_drops_the_target(db: MariaDb, tmp_path: Path) -> None:
    sql = SqlLog()
    sql.run(*TWO_SOURCES, "DROP DATABASE crm", "DROP DATABASE sales")
    delivered(sql.write(tmp_path / "log"), db.uri, SHARED)
    assert ("archive",) not in db.rows("SHOW DATABASES")


@pytest.mark.parametrize(
    ("toml", "drops"),
    [
        ("", ["DROP DATABASE `crm`"]),
        ("[[sink.dispatchers]]\nmatcher = ['*.*']\ntarget-schema = '{schema}_x'\n", ["DROP DATABASE `crm_x`"]),
        # the target is the name of another database
        ("[[sink.dispatchers]]\nmatcher = ['crm.*']\ntarget-schema = 'sales'\n",
         ["DROP VIEW `sales`.`known`", "DROP TABLE `sales`.`people`", "DROP TABLE `sales`.`calls`"]),
        # a table of another database has it
        ("[[sink.dispatchers]]\nmatcher = ['sales.orders']\ntarget-schema = 'crm'\n",
         ["DROP VIEW `crm`.`known`", "DROP TABLE `crm`.`people`", "DROP TABLE `crm`.`calls`"]),
        # the tables have several
        ("[[sink.dispatchers]]\nmatcher = ['crm.people']\ntarget-schema = 'a'\n"
         "[[sink.dispatchers]]\nmatcher = ['crm.*']\ntarget-schema = 'b'\n"
         "[[filter.event-filters]]\nmatcher = ['crm.*']\nignore-event = ['create database']\n",
         ["DROP VIEW `b`.`known`", "DROP TABLE `a`.`people`", "DROP TABLE `b`.`calls`"]),
        # what the rules leave out is not dropped
        (SHARED + "[filter]\nrules = ['sales.*', 'crm.people']\n", ["DROP TABLE `archive`.`crm_people`"]),
    ],
)  # fmt: skip
def test_what_a_dropped_database_is_downstream(tmp_path: Path, toml: str, drops: list[str]) -> None:
    sql = SqlLog()
    sql.run(*TWO_SOURCES, "DROP DATABASE crm")
    assert [query for query in queries(sql.write(tmp_path / "log"), tmp_path / "out", toml) if query.startswith("DROP")] == drops


RULES = FORCED + "[filter]\nrules = ['app.t', 'app.part']\n"
PARTS = "PARTITION BY RANGE (id) (PARTITION `P-0` VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"


@pytest.mark.slow
def test_a_table_that_enters_the_rules_of_a_database_is_made(db: MariaDb, tmp_path: Path) -> None:
    sql = SqlLog()
    db.run("CREATE DATABASE app")
    sql.run("CREATE TABLE Before1 (id INT PRIMARY KEY, v INT DEFAULT 3)", "INSERT INTO before1 VALUES (1, 1)", "RENAME TABLE before1 TO t",
            "INSERT INTO t (id) VALUES (2)", "ALTER TABLE t ADD COLUMN w INT")  # fmt: skip
    delivered(sql.write(tmp_path / "log"), db.uri, RULES)
    assert db.rows("SELECT * FROM app.t") == [(2, 3, None)]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["other.t", "app.u"])
def test_a_table_that_leaves_the_rules_of_a_database_is_renamed(db: MariaDb, tmp_path: Path, target: str) -> None:
    sql = SqlLog()
    db.run("CREATE DATABASE app")
    sql.run("CREATE DATABASE other", "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", f"RENAME TABLE t TO {target}",
            "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (2)", f"INSERT INTO {target} VALUES (3)")  # fmt: skip
    delivered(sql.write(tmp_path / "log"), db.uri, RULES)
    assert tables(db) == {"app.t", target}
    assert db.rows("SELECT * FROM app.t") == [(2,)]
    assert db.rows(f"SELECT * FROM {target}") == [(1,)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("whole", "plain", "left"),
    [("part", "hidden", {"part": {12}}), ("hidden", "t", {"t": set()}), ("part", "t", {"part": {5, 12}, "t": {1}})],
)
def test_an_exchange_with_a_table_outside_empties_what_is_inside(
    db: MariaDb, tmp_path: Path, whole: str, plain: str, left: dict[str, set[int]]
) -> None:
    sql = SqlLog()
    db.run("CREATE DATABASE app")
    sql.run(f"CREATE TABLE {whole} (id INT PRIMARY KEY) {PARTS}", f"CREATE TABLE {plain} (id INT PRIMARY KEY)",
            f"INSERT INTO {whole} VALUES (1), (12)", f"INSERT INTO {plain} VALUES (5)",
            f"ALTER TABLE {whole} EXCHANGE PARTITION `P-0` WITH TABLE {plain}")  # fmt: skip
    delivered(sql.write(tmp_path / "log"), db.uri, RULES)
    assert {name: {value for (value,) in db.rows(f"SELECT id FROM app.{name}")} for name in left} == left
