"""DDLs of a Drainer that sleeps, or loses an answer: they run once, and none behind a newer Drainer's. Errors count as done before only
if the database is as the statement wants it."""

from __future__ import annotations

import pytest

from tests.support.binlog.made import outlet
from tests.support.delivery.frozen import at
from tests.support.servers.mariadb import MariaDb
from tidemill.binlog.ddls import Ddl
from tidemill.binlog.outputs.transactions import DdlBinlog, Entry
from tidemill.errors import Fenced, SinkError
from tidemill.sinks.mysql.connection import ServerFault

pytestmark = pytest.mark.slow


def ddl(ts: int, query: str) -> DdlBinlog:
    return DdlBinlog(ts, Ddl("d", "t", query, query.startswith("CREATE DATABASE")))


MADE: list[Entry] = [ddl(1, "CREATE DATABASE d"), ddl(2, "CREATE TABLE t (id INT PRIMARY KEY, v INT)")]


@pytest.fixture
def db(mariadb: MariaDb) -> MariaDb:
    mariadb.clear()
    return mariadb


def test_a_drainer_that_wakes_up_behind_another_runs_no_ddl(db: MariaDb, monkeypatch: pytest.MonkeyPatch) -> None:
    old, truncate = outlet(db), ddl(4, "TRUNCATE TABLE t")
    old.write(MADE)

    def meanwhile() -> None:
        new = outlet(db)
        new.write([truncate])
        new.close()
        db.run("INSERT INTO d.t VALUES (2, 2)")

    with at(monkeypatch, "GET_LOCK", meanwhile), pytest.raises(Fenced):
        old.write([truncate])
    assert db.rows("SELECT id FROM d.t") == [(2,)]
    old.close()


@pytest.mark.parametrize("behind", [False, True])
def test_an_exchange_whose_answer_is_lost_runs_once(db: MariaDb, monkeypatch: pytest.MonkeyPatch, behind: bool) -> None:
    db.run(
        "CREATE DATABASE d",
        "CREATE TABLE d.p (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10))",
        "CREATE TABLE d.n (id INT PRIMARY KEY)",
        "INSERT INTO d.p VALUES (1)",
        "INSERT INTO d.n VALUES (2)",
    )
    monkeypatch.setattr("tidemill.binlog.drainer.database.database.RETRY_S", 0.01)
    exchange = ddl(4, "alter table p exchange partition p0 with table n")

    def lose() -> None:
        raise ServerFault(2013, "lost connection")

    made = outlet(db)
    with at(monkeypatch, "(?i)^alter", lose, behind=behind):
        made.write([exchange])
    made.close()
    again = outlet(db)  # from a position before the DDL
    again.write([exchange])
    again.close()
    assert db.rows("SELECT id FROM d.p UNION ALL SELECT id FROM d.n") == [(2,), (1,)]


def test_a_view_whose_table_is_missing_is_not_taken_as_made(db: MariaDb) -> None:
    made = outlet(db)
    made.write(MADE)
    with pytest.raises(SinkError, match=r"(?s)1146.*ignore-txn-commit-ts|ignore-txn-commit-ts.*1146"):
        made.write([ddl(3, "create view v as select * from gone")])
    made.close()
