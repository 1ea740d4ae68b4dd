"""DDLs in a real MariaDB: ADD INDEX beside the rows, the session of a DDL, what counts as done, and a stop."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.delivery.database_sinks import CREATE, LATER, change, made_of
from tests.support.servers.mariadb import MariaDb
from tidemill.errors import SinkError, SinkUnavailable
from tidemill.records import KIND_INSERT
from tidemill.sinks.mysql.connection import Connection
from tidemill.sinks.mysql.ddls import running
from tidemill.sinks.mysql.ddls.running import _meet
from tidemill.tidb.schema.codes import Action

ADD = "ALTER TABLE `s`.`t` ADD INDEX `i`(`c2`)"
INDEX = {"type": Action.ADD_INDEX}
QUICK = "async-ddl-timeout=50ms"


@pytest.mark.parametrize(
    ("ours", "theirs", "meet"),
    [
        (("s.t",), ("s.t", "s.u"), True),
        (("s.t",), ("s.u",), False),
        (("s.t",), ("s.*",), True),
        (("s.*",), ("s.t",), True),
        (("s.t",), ("r.*",), False),
    ],
)
def test_a_ddl_waits_for_those_of_its_tables(ours: tuple[str, ...], theirs: tuple[str, ...], meet: bool) -> None:
    assert _meet(ours, theirs) is meet


@pytest.fixture
def db(mariadb: MariaDb) -> MariaDb:
    mariadb.clear()
    mariadb.run(*CREATE, "INSERT INTO s.t VALUES (1, 1)")
    return mariadb


@pytest.fixture
def sinks(db: MariaDb) -> Iterator[Any]:
    with made_of(db) as make:
        yield make


@contextlib.contextmanager
def held(db: MariaDb) -> Iterator[Any]:
    """A transaction that reads `s.t`: DDLs of it wait until it ends."""
    with db.connect(autocommit=False) as reader, reader.cursor() as cursor:
        cursor.execute("SELECT * FROM s.t")
        yield reader
        with contextlib.suppress(Exception):
            reader.rollback()


def await_that(condition: Any) -> None:
    end = threading.Event()
    for _ in range(2400):
        if condition():
            return
        end.wait(0.05)
    raise AssertionError("not in time")


def waiting(db: MariaDb) -> int:
    return int(db.rows("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'ALTER TABLE%' AND command = 'Query'")[0][0])


def indexes(db: MariaDb) -> set[str]:
    return {
        name for (name,) in db.rows("SELECT index_name FROM information_schema.statistics WHERE table_schema = 's' AND table_name = 't'")
    }


def remembered(db: MariaDb) -> int:
    return int(db.rows("SELECT COUNT(*) FROM tidb_cdc.tidemill_ddl_v1")[0][0])


@pytest.mark.slow
def test_rows_go_on_while_an_index_is_built_and_the_next_ddl_waits(db: MariaDb, sinks: Any) -> None:
    sink = sinks(QUICK)
    with held(db) as reader:
        ctx = sink.begin(1)
        sink.ddl(ADD, **INDEX)  # returns, although it waits
        sink.driver.finish_batch(ctx)
        await_that(lambda: waiting(db) == 1)
        assert remembered(db) == 1
        sink.batch(2, change(KIND_INSERT, 5, 5, LATER + 11, number=1), from_ts=LATER + 10, to_ts=LATER + 20)  # another table
        sink.begin(3, LATER + 20, LATER + 30)
        nextone = threading.Thread(target=lambda: sink.ddl("ALTER TABLE `s`.`t` DROP INDEX `i`", LATER + 30))
        nextone.start()
        nextone.join(0.5)
        assert nextone.is_alive()
        reader.rollback()
        nextone.join(120)
        assert not nextone.is_alive()
    assert "i" not in indexes(db)
    assert remembered(db) == 0


@pytest.mark.slow
@pytest.mark.not_tidb("an ALTER that was killed goes on until the reader has ended")
def test_an_index_that_a_process_left_unfinished_is_built_by_the_next_one(db: MariaDb, sinks: Any) -> None:
    sink = sinks(QUICK)
    with held(db):
        ctx = sink.begin(1)
        sink.ddl(ADD, **INDEX)
        sink.driver.finish_batch(ctx)
        await_that(lambda: waiting(db) == 1)
        for (number,) in db.rows(
            "SELECT id FROM information_schema.processlist WHERE info LIKE 'ALTER TABLE%ADD INDEX%' AND command = 'Query'"
        ):
            db.run(f"KILL QUERY {number}")  # as if it had ended with its process
        await_that(lambda: waiting(db) == 0)
    assert "i" not in indexes(db)
    again = sinks(QUICK)
    again.batch(2, from_ts=LATER + 10, to_ts=LATER + 20)
    await_that(lambda: "i" in indexes(db))
    again.batch(3, from_ts=LATER + 20, to_ts=LATER + 30)
    await_that(lambda: remembered(db) == 0 or again.batch(4, from_ts=LATER + 30, to_ts=LATER + 40))


@pytest.mark.slow
def test_an_index_that_the_server_refuses_stops_the_feed_later_with_its_statement(db: MariaDb, sinks: Any) -> None:
    sink = sinks()
    sink.begin(1)
    with pytest.raises(SinkError, match=r"(?s)refuses a DDL: error 1072: .*ADD INDEX `i`.*ignore-sql") as caught:
        sink.ddl("ALTER TABLE `s`.`t` ADD INDEX `i`(`absent`)", **INDEX)
    assert not caught.value.retryable
    assert remembered(db) == 0


def stopped(db: MariaDb, sink: Any) -> str:
    """Stop while a DDL waits for a reader of its table. Returns what is said."""
    stop = threading.Event()
    sink.driver.heed(stop)
    sink.begin(1)
    caught: list[BaseException] = []

    def run() -> None:
        try:
            sink.ddl("ALTER TABLE `s`.`t` ADD COLUMN `c3` INT")
        except SinkUnavailable as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    await_that(lambda: waiting(db) == 1)
    stop.set()
    thread.join(120)
    (error,) = caught
    return str(error)


@pytest.mark.slow
@pytest.mark.not_tidb("a KILL does not end an ALTER that waits for a reader")
def test_a_ddl_is_killed_when_a_stop_is_asked_for_and_runs_at_the_next_start(db: MariaDb, sinks: Any) -> None:
    with held(db):
        assert "stopped while a DDL ran; the next start runs it again" in stopped(db, sinks())
        assert waiting(db) == 0  # the server does not go on with it
    again = sinks()
    again.begin(2)
    again.ddl("ALTER TABLE `s`.`t` ADD COLUMN `c3` INT")
    assert db.rows("SELECT * FROM s.t") == [(1, 1, None)]


@pytest.mark.slow
def test_a_ddl_that_the_server_does_not_end_is_waited_for_at_the_next_start(
    db: MariaDb, sinks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "KILLED_S", 0.2)
    monkeypatch.setattr(Connection, "kill", lambda _: None)
    with held(db) as reader:
        assert "stopped while a DDL ran; the next start waits for it" in stopped(db, sinks())
        again = sinks()
        begun = threading.Thread(target=lambda: again.begin(2))
        begun.start()
        reader.rollback()
        begun.join(120)
        assert not begun.is_alive()
    again.ddl("ALTER TABLE `s`.`t` ADD COLUMN `c3` INT")
    assert db.rows("SELECT * FROM s.t") == [(1, 1, None)]


@pytest.mark.slow
def test_a_ddl_runs_in_a_session_as_upstream(db: MariaDb, sinks: Any) -> None:
    sink = sinks()
    sink.begin(1)
    sink.ddl("ALTER TABLE `t` ADD COLUMN (`z` DATE NOT NULL DEFAULT '0000-00-00', `ts` TIMESTAMP NULL)")  # its schema, its sql_mode
    sink.ddl("CREATE DATABASE `plain`", type=Action.CREATE_SCHEMA, schema="plain", table="")
    sink.ddl("CREATE TABLE `u2` (a VARCHAR(9))")
    found = "SELECT default_character_set_name, default_collation_name FROM information_schema.schemata WHERE schema_name = 'plain'"
    assert db.rows(found) == [("utf8mb4", "utf8mb4_bin")]
    db.run("INSERT INTO s.u2 (a) VALUES ('x')")
    assert db.rows("SELECT COUNT(*) FROM s.u2") == [(1,)]
    books = sink.driver._the_connection()
    mode, zone, commits = books.rows("SELECT @@sql_mode, @@time_zone, @@autocommit")[0]
    assert "STRICT_TRANS_TABLES" in mode  # the books' own session is as before
    assert (zone, commits) == ("+00:00", 0)
