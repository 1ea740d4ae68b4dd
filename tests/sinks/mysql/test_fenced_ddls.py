"""DDLs of a driver that sleeps, dies or loses an answer at any statement: no older driver's DDL runs behind a newer driver's first step,
and none runs twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.delivery.database_sinks import CREATE, LATER, Sink, change, fence, made_of
from tests.support.delivery.frozen import at
from tests.support.servers.mariadb import MariaDb
from tidemill.errors import Fenced, SinkError, SinkUnavailable
from tidemill.records import KIND_INSERT
from tidemill.sinks.mysql.connection import ServerFault
from tidemill.tidb.schema.codes import Action

pytestmark = pytest.mark.slow

END = LATER + 10
TRUNCATE = "TRUNCATE TABLE `s`.`t`"
PARTITIONED = (
    "CREATE TABLE s.p (c1 BIGINT PRIMARY KEY, c2 BIGINT) PARTITION BY RANGE (c1) "
    "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))",
    "CREATE TABLE s.n (c1 BIGINT PRIMARY KEY, c2 BIGINT)",
    "INSERT INTO s.p VALUES (1, 1), (2, 2)",
    "INSERT INTO s.n VALUES (5, 5)",
)


@pytest.fixture
def db(mariadb: MariaDb) -> MariaDb:
    mariadb.clear()
    mariadb.run(*CREATE, *PARTITIONED, "INSERT INTO s.t VALUES (1, 10)")
    return mariadb


@pytest.fixture
def sinks(db: MariaDb) -> Iterator[Any]:
    with made_of(db) as make:
        yield make


PLACES = [
    ("the lock", "GET_LOCK", False),
    ("the look behind the lock", "GET_LOCK", True),
    ("the state before", r"SET SESSION sql_mode = .*, timestamp = ", False),
    ("the session", "SET SESSION autocommit = 1", False),
    ("the DDL", "TRUNCATE", False),
]


@pytest.mark.parametrize(("pattern", "behind"), [place[1:] for place in PLACES], ids=[place[0] for place in PLACES])
def test_a_driver_that_wakes_up_behind_another_runs_no_ddl(
    db: MariaDb, sinks: Any, monkeypatch: pytest.MonkeyPatch, pattern: str, behind: bool
) -> None:
    old, new = sinks(), sinks()

    taken: list[bool] = []

    def meanwhile() -> None:
        taken.append(True)
        ctx = new.begin(3, LATER, END)
        new.ddl(TRUNCATE, END, type=Action.TRUNCATE_TABLE)
        new.driver.finish_batch(ctx)
        new.batch(4, change(KIND_INSERT, 7, 7, END + 5), change(KIND_INSERT, 8, 8, END + 6), from_ts=END, to_ts=END + 10)

    old.begin(2, LATER, END, fence(taken))
    with at(monkeypatch, pattern, meanwhile, behind=behind, thread="mysql-ddl"), pytest.raises((Fenced, SinkUnavailable)):
        old.ddl(TRUNCATE, END, type=Action.TRUNCATE_TABLE)
    assert db.rows("SELECT c1 FROM s.t ORDER BY 1") == [(7,), (8,)]
    with pytest.raises(Fenced):
        old.begin(2, LATER, END, fence(taken))
    new.batch(5, change(KIND_INSERT, 9, 9, END + 15), from_ts=END + 10, to_ts=END + 20)
    assert db.rows("SELECT epoch, done, checkpoint_ts FROM tidb_cdc.tidemill_feed_v1") == [(5, 2, END + 20)]
    assert db.rows("SELECT ddl_ts, finished FROM tidb_cdc.ddl_ts_v1") == [(str(END), 1)]


def test_what_an_older_driver_notes_late_is_refused(db: MariaDb, sinks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It finishes its batch, or marks its rows, when another one has gone on."""
    for epoch, late in enumerate((lambda old, ctx: old.driver.finish_batch(ctx), lambda old, _: old.ddl(TRUNCATE, END))):
        old, new = sinks(), sinks()
        taken: list[bool] = []
        ctx = old.begin(10 * epoch + 2, LATER, END + epoch, fence(taken))
        new.batch(10 * epoch + 3, from_ts=LATER, to_ts=END + epoch)
        taken.append(True)
        with pytest.raises(Fenced):
            late(old, ctx)
        assert db.rows("SELECT epoch, done, checkpoint_ts FROM tidb_cdc.tidemill_feed_v1") == [(10 * epoch + 3, 2, END + epoch)]


def lost(db: MariaDb, sink: Sink, monkeypatch: pytest.MonkeyPatch, query: str, pattern: str, *, behind: bool, **more: Any) -> None:
    """Run a DDL whose connection is lost at a statement."""

    def cut() -> None:
        raise ServerFault(2013, "lost connection")

    sink.begin(1, LATER, END)
    with at(monkeypatch, pattern, cut, behind=behind, thread="mysql-ddl"), pytest.raises(SinkUnavailable):
        sink.ddl(query, END, **more)


TWICE = {
    "exchange": (
        "ALTER TABLE `s`.`p` EXCHANGE PARTITION `p0` WITH TABLE `s`.`n`",
        "EXCHANGE",
        "SELECT GROUP_CONCAT(c1 ORDER BY c1) FROM s.p UNION ALL SELECT GROUP_CONCAT(c1 ORDER BY c1) FROM s.n",
        [("5",), ("1,2",)],
        Action.EXCHANGE_PARTITION,
    ),
    "columns that swap": (
        "ALTER TABLE `s`.`t` RENAME COLUMN `c1` TO `c2`, RENAME COLUMN `c2` TO `c1`",
        "RENAME COLUMN",
        "SELECT c1, c2 FROM s.t",
        [(10, 1)],
        Action.MULTI_SCHEMA_CHANGE,
    ),
    "an index without a name": (
        "ALTER TABLE `s`.`u` ADD INDEX(`c2`), COMMENT = 'x'",
        "ADD INDEX",
        "SELECT index_name FROM information_schema.statistics WHERE table_schema = 's' AND table_name = 'u' ORDER BY LOWER(index_name)",
        [("c2",), ("PRIMARY",)],
        Action.MULTI_SCHEMA_CHANGE,
    ),
    "a column of numbers": (
        "ALTER TABLE `s`.`k` ADD COLUMN `id` BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY",
        "ADD COLUMN",
        "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = 's' AND table_name = 'k'",
        [(3,)],
        Action.ADD_COLUMN,
    ),
}

NOT_IN_TIDB = ("columns that swap", "a column of numbers")


@pytest.mark.parametrize("behind", [False, True], ids=["before it", "behind it"])
@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=pytest.mark.not_tidb("it refuses the statement")) if what in NOT_IN_TIDB else what for what in TWICE]
)
def test_a_ddl_whose_answer_is_lost_runs_once(db: MariaDb, sinks: Any, monkeypatch: pytest.MonkeyPatch, what: str, behind: bool) -> None:
    query, pattern, ask, expected, action = TWICE[what]
    lost(db, sinks(), monkeypatch, query, f"^ALTER.*{pattern}", behind=behind, type=action)
    again = sinks()
    ctx = again.begin(2, LATER, END)
    again.ddl(query, END, type=action)
    again.driver.finish_batch(ctx)
    assert db.rows(ask) == expected
    assert db.rows("SELECT COUNT(*) FROM tidb_cdc.tidemill_plan_v1") == [(0,)]
    assert not db.rows("SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE 'tidemill%'")


def test_a_table_that_is_neither_as_before_nor_as_after_stops_the_feed(db: MariaDb, sinks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    query, _, ask, expected, _ = TWICE["an index without a name"]
    lost(db, sinks(), monkeypatch, query, "^ALTER", behind=True, type=Action.MULTI_SCHEMA_CHANGE)
    db.run("ALTER TABLE s.u ADD COLUMN z INT")
    again = sinks()
    again.begin(2, LATER, END)
    with pytest.raises(SinkError, match=r"(?s)neither as it was before.*it was:.*it would be:.*it is:.*`z`") as caught:
        again.ddl(query, END, type=Action.MULTI_SCHEMA_CHANGE)
    assert not caught.value.retryable
    db.run("ALTER TABLE s.u DROP COLUMN z")
    ctx = again.begin(3, LATER, END)
    again.ddl(query, END, type=Action.MULTI_SCHEMA_CHANGE)
    again.driver.finish_batch(ctx)
    assert db.rows(ask) == expected


def test_an_exchange_of_which_the_ids_say_nothing_stops_the_feed(db: MariaDb, sinks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    query = TWICE["exchange"][0]
    lost(db, sinks(), monkeypatch, query, "^ALTER", behind=True, type=Action.EXCHANGE_PARTITION)
    db.run("UPDATE tidb_cdc.tidemill_plan_v1 SET before_it = '{\"ids\": null}'")  # the user lacks PROCESS
    again = sinks()
    again.begin(2, LATER, END)
    with pytest.raises(SinkError, match="nobody can tell whether an EXCHANGE PARTITION ran") as caught:
        again.ddl(query, END, type=Action.EXCHANGE_PARTITION)
    assert "PROCESS" in caught.value.hint


def test_a_statement_that_an_older_driver_runs_is_waited_for(db: MariaDb, sinks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new driver begins only when it is over, and knows then that it ran."""
    old = sinks()
    taken: list[bool] = []
    old.begin(1, LATER, END, fence(taken))
    query = "ALTER TABLE `s`.`u` ADD INDEX(`c2`), COMMENT = 'x'"
    with db.connect(autocommit=False) as reader, reader.cursor() as cursor:
        cursor.execute("SELECT * FROM s.u")

        failed: list[BaseException] = []

        def run() -> None:
            try:
                old.ddl(query, END, type=Action.MULTI_SCHEMA_CHANGE)
            except Exception as error:
                failed.append(error)

        first = threading.Thread(target=run)
        first.start()
        running = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'ALTER TABLE%'"
        while db.rows(running) != [(1,)]:  # it waits for the reader
            threading.Event().wait(0.05)
        new = sinks()
        taken.append(True)
        begun = threading.Thread(target=lambda: new.begin(2, LATER, END))
        begun.start()
        begun.join(2)
        assert begun.is_alive()
        reader.rollback()
        first.join(60)
        begun.join(60)
        assert not begun.is_alive()
    assert isinstance(failed[0], Fenced)
    new.ddl(query, END, type=Action.MULTI_SCHEMA_CHANGE)
    assert db.rows("SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = 's' AND table_name = 'u'") == [(2,)]


@pytest.mark.parametrize("behind", [False, True], ids=["before it", "behind it"])
def test_a_ring_of_names_whose_answer_is_lost_runs_once(db: MariaDb, sinks: Any, monkeypatch: pytest.MonkeyPatch, behind: bool) -> None:
    query = "RENAME TABLE `s`.`t` TO `s`.`x`, `s`.`u` TO `s`.`t`, `s`.`x` TO `s`.`u`"
    lost(db, sinks(), monkeypatch, query, "^RENAME", behind=behind, type=Action.RENAME_TABLE)
    again = sinks()
    ctx = again.begin(2, LATER, END)
    again.ddl(query, END, type=Action.RENAME_TABLE)
    again.driver.finish_batch(ctx)
    assert db.rows("SELECT c1 FROM s.u") == [(1,)]
    assert db.rows("SELECT COUNT(*) FROM information_schema.tables WHERE table_name LIKE 'tidemill_rename%'") == [(0,)]
