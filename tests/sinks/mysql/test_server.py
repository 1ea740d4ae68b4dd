"""The two halves of the sink against a real MariaDB: attempts and their fence, restarts, faults of the server, DDLs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pymysql
import pytest

from tests.support.delivery.database_sinks import CREATE, LATER, change, fence, made_of
from tests.support.servers.mariadb import MariaDb
from tidemill.config.uri import parse_sink_uri
from tidemill.errors import Fenced, SinkError, SinkUnavailable
from tidemill.records import KIND_DELETE, KIND_INSERT, KIND_UPDATE
from tidemill.sinks.base import BatchContext
from tidemill.sinks.mysql.driver import MysqlDriverSink
from tidemill.tidb.schema.codes import Action

pytestmark = pytest.mark.slow


@pytest.fixture
def db(mariadb: MariaDb) -> MariaDb:
    mariadb.clear()
    mariadb.run(*CREATE)
    return mariadb


@pytest.fixture
def sinks(db: MariaDb) -> Iterator[Any]:
    with made_of(db) as make:
        yield make


def rows(db: MariaDb) -> Sequence[tuple[int, int]]:
    return sorted(db.rows("SELECT * FROM s.t"))


def logged(db: MariaDb) -> list[str]:
    """The statements that wrote rows, in order."""
    packets = db.rows("SELECT CONVERT(argument USING utf8mb4) FROM mysql.general_log WHERE argument LIKE '%INTO `s`.`t`%'")
    texts = (text for (packet,) in packets for text in packet.split(";"))
    return [text for text in texts if text.startswith(("INSERT", "REPLACE", "DELETE")) and "`s`.`t`" in text]


@pytest.fixture
def general_log(db: MariaDb) -> Iterator[None]:
    db.run("SET GLOBAL log_output = 'TABLE'", "TRUNCATE mysql.general_log", "SET GLOBAL general_log = ON")
    yield
    db.run("SET GLOBAL general_log = OFF")


@pytest.mark.not_tidb("its general log is not a table")
def test_rows_are_inserted_updated_and_deleted(db: MariaDb, sinks: Any, general_log: None) -> None:
    sink = sinks()
    sink.batch(1, *(change(KIND_INSERT, n, n, LATER + 1) for n in range(5)), change(KIND_DELETE, 3, 3, LATER + 2))
    sink.batch(2, change(KIND_UPDATE, 1, 1, LATER + 11), from_ts=LATER + 10, to_ts=LATER + 20)
    assert rows(db) == [(n, n) for n in (0, 1, 2, 4)]
    found = logged(db)
    assert [text.split()[0] for text in found] == ["INSERT", "INSERT"]
    assert "ON DUPLICATE KEY UPDATE" in found[1]


@pytest.mark.not_tidb("its general log is not a table")
def test_what_may_have_been_written_before_is_replaced(db: MariaDb, sinks: Any, general_log: None) -> None:
    """Rows below the start of the sink, and those of an interval that is begun again."""
    sink = sinks()
    sink.batch(1, change(KIND_INSERT, 1, 1, 100), from_ts=50, to_ts=200)
    sink.begin(2)
    sink.deliver(change(KIND_INSERT, 2, 2, LATER + 1))
    sink.task.flush()
    sink.task.abandon()
    sink.batch(3, change(KIND_INSERT, 2, 2, LATER + 1), change(KIND_INSERT, 3, 3, LATER + 2))
    assert rows(db) == [(1, 1), (2, 2), (3, 3)]
    assert [text.split()[0] for text in logged(db)] == ["REPLACE", "INSERT", "REPLACE"]


@pytest.mark.not_tidb("its general log is not a table")
def test_the_upstreams_clock_says_what_may_have_been_written_before(db: MariaDb, sinks: Any, general_log: None) -> None:
    """As in TiCDC: rows up to PD's time at the start are replaced, later ones inserted, whatever this machine's clock says."""
    rows = [change(KIND_INSERT, n, n, ts) for n, ts in enumerate((90, 100, 101, 150))]
    sinks("max-txn-row=1").batch(1, *rows, from_ts=50, to_ts=200, started_ts=100)
    assert [text.split()[0] for text in logged(db)] == ["REPLACE", "REPLACE", "INSERT", "INSERT"]


@pytest.mark.not_tidb("its general log is not a table")
def test_safe_mode_always_replaces(db: MariaDb, sinks: Any, general_log: None) -> None:
    sinks("safe-mode=true").batch(1, change(KIND_INSERT, 1, 1, LATER + 1))
    assert [text.split()[0] for text in logged(db)] == ["REPLACE"]


def test_a_row_that_is_in_the_way_is_replaced(db: MariaDb, sinks: Any) -> None:
    """It should not be there: the second attempt at the transaction replaces it."""
    db.run("INSERT INTO s.t VALUES (9, 1)")
    sinks().batch(1, change(KIND_INSERT, 1, 1, LATER + 1))
    assert rows(db) == [(1, 1)]


@pytest.mark.parametrize("parameters", ["", "safe-mode=true"])
def test_foreign_keys_are_neither_checked_nor_followed(db: MariaDb, sinks: Any, parameters: str) -> None:
    """What they bring about upstream comes as rows. Tables are written side by side, so a child may come before its parent."""
    db.run("ALTER TABLE s.u ADD FOREIGN KEY (c2) REFERENCES s.t (c1) ON DELETE CASCADE ON UPDATE CASCADE")
    sink = sinks(parameters)
    sink.batch(1, change(KIND_INSERT, 10, 1, LATER + 1, 1), change(KIND_INSERT, 20, 99, LATER + 1, 1))
    sink.batch(2, change(KIND_INSERT, 1, 7, LATER + 11), from_ts=LATER + 10, to_ts=LATER + 20)
    sink.batch(3, change(KIND_DELETE, 1, 7, LATER + 21), from_ts=LATER + 20, to_ts=LATER + 30)
    assert sorted(db.rows("SELECT * FROM s.u")) == [(10, 1), (20, 99)]
    sink.batch(4, change(KIND_DELETE, 10, 1, LATER + 31, 1), from_ts=LATER + 30, to_ts=LATER + 40)
    assert db.rows("SELECT * FROM s.u") == [(20, 99)]


def test_a_task_of_an_older_attempt_cannot_commit(db: MariaDb, sinks: Any) -> None:
    sink, zombie = sinks(), sinks()
    taken: list[bool] = []
    zombie.begin(1, look=fence(taken))
    zombie.deliver(change(KIND_INSERT, 1, 1, LATER + 1))
    _ = zombie.task._in_force  # it has asked for its attempt, and is about to write
    sink.begin(2)
    taken.append(True)
    with pytest.raises(Fenced):
        zombie.task.flush()
    zombie.task.abandon()
    assert rows(db) == []
    zombie.task.begin(BatchContext("feed", 1, 1, LATER, LATER + 10, item=0, check_fence=fence(taken)))
    zombie.deliver(change(KIND_INSERT, 1, 1, LATER + 1))
    with pytest.raises(Fenced):
        zombie.task.flush()
    with pytest.raises(Fenced, match="another driver"):
        zombie.driver.begin_batch(BatchContext("feed", 3, 3, LATER, LATER + 10, check_fence=fence(taken)))
    sink.deliver(change(KIND_INSERT, 2, 2, LATER + 1))
    sink.task.flush()
    assert rows(db) == [(2, 2)]


def test_a_new_attempt_waits_for_the_transactions_of_the_one_before(db: MariaDb, sinks: Any) -> None:
    """A transaction of a task holds its lane: nothing of it can come after the next attempt began."""
    sink = sinks()
    sink.begin(1)
    with db.connect(autocommit=False) as holder, holder.cursor() as cursor:
        cursor.execute("SELECT 1 FROM tidb_cdc.tidemill_lane_v1 WHERE changefeed = 'feed' AND lane = 0 FOR UPDATE")
        begun = threading.Event()
        thread = threading.Thread(target=lambda: (sink.begin(2), begun.set()))
        thread.start()
        assert not begun.wait(0.5)
        holder.rollback()
        thread.join(120)
        assert begun.is_set()


def test_a_task_that_waits_for_a_lock_ends_with_its_attempt(db: MariaDb, sinks: Any) -> None:
    db.run("INSERT INTO s.t VALUES (1, 1)")
    looks: list[bool] = []

    def over(*, now: bool = False) -> None:
        looks.append(now)
        if len(looks) > 2:
            raise Fenced("epoch 1 is over")

    sink = sinks()
    with db.connect(autocommit=False) as other, other.cursor() as cursor:
        cursor.execute("UPDATE s.t SET c2 = 5 WHERE c1 = 1")
        sink.begin(1, look=over)
        sink.deliver(change(KIND_UPDATE, 1, 7, LATER + 1))
        with pytest.raises(Fenced):
            sink.task.flush()
        sink.task.abandon()
        other.commit()
    assert rows(db) == [(1, 5)]
    sink.begin(2)
    sink.deliver(change(KIND_UPDATE, 1, 9, LATER + 1))
    sink.task.flush()
    assert rows(db) == [(1, 9)]


def test_an_interval_that_is_done_is_not_written_again(db: MariaDb, sinks: Any) -> None:
    """The process ended between the database's books and its own checkpoint."""
    sinks().batch(1, change(KIND_INSERT, 1, 1, LATER + 1))
    db.run("UPDATE s.t SET c2 = 77")
    again = sinks()
    again.batch(2, change(KIND_INSERT, 1, 1, LATER + 1))
    assert rows(db) == [(1, 77)]
    again.batch(3, change(KIND_INSERT, 1, 1, LATER + 1), to_ts=LATER + 11)  # another interval: somebody set the checkpoint back
    assert rows(db) == [(1, 1)]


def test_another_life_of_a_changefeed_begins_from_nothing(db: MariaDb, sinks: Any) -> None:
    """Its epochs begin with 1 again: what the books say of the first life does not count."""
    sinks().batch(5, change(KIND_INSERT, 1, 1, LATER + 1))
    db.run("TRUNCATE s.t")
    sinks().batch(1, change(KIND_INSERT, 1, 1, LATER + 1))
    assert rows(db) == [(1, 1)]


def test_a_replay_begins_from_nothing(db: MariaDb, sinks: Any) -> None:
    sinks().batch(5, change(KIND_INSERT, 1, 1, LATER + 1))
    db.run("TRUNCATE s.t")
    sinks(fresh=True).batch(6, change(KIND_INSERT, 1, 1, LATER + 1))
    assert rows(db) == [(1, 1)]


def test_a_connection_that_is_lost_is_opened_again(db: MariaDb, sinks: Any) -> None:
    sink = sinks()
    sink.batch(1, change(KIND_INSERT, 1, 1, LATER + 1))
    for (number,) in db.rows("SELECT id FROM information_schema.processlist WHERE command = 'Sleep' AND id <> CONNECTION_ID()"):
        db.run(f"KILL {number}")
    ctx = BatchContext("feed", 2, 2, LATER + 10, LATER + 20)
    with pytest.raises(SinkUnavailable):  # the driver's: the batch is tried again
        sink.driver.begin_batch(ctx)
    sink.batch(3, change(KIND_INSERT, 2, 2, LATER + 11), from_ts=LATER + 10, to_ts=LATER + 20)
    assert rows(db) == [(1, 1), (2, 2)]


@pytest.mark.mariadb("InnoDB's counter of waits")
def test_a_deadlock_is_tried_again(db: MariaDb, sinks: Any) -> None:
    """Another session holds a row that the task wants, and wants one that the task holds."""
    db.run("INSERT INTO s.t VALUES (1, 1), (2, 2)")
    sink = sinks("batch-dml-enable=false")
    with db.connect(autocommit=False) as other, other.cursor() as cursor:
        cursor.execute("UPDATE s.t SET c2 = 20 WHERE c1 = 2")
        sink.begin(1)
        sink.deliver(change(KIND_UPDATE, 1, 1, LATER + 1), change(KIND_UPDATE, 2, 2, LATER + 1))
        thread = threading.Thread(target=sink.task.flush)
        thread.start()
        waits = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'"  # InnoDB's tables stand still while they are asked all the time
        while db.rows(waits)[0][1] == "0":
            assert thread.is_alive()
        with contextlib.suppress(pymysql.err.OperationalError):  # one of the two is the victim
            cursor.execute("UPDATE s.t SET c2 = 10 WHERE c1 = 1")
        other.rollback()
        thread.join(120)
        assert not thread.is_alive()
    assert rows(db) == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("DROP TABLE s.t", "The table is not there"),
        ("ALTER TABLE s.t DROP COLUMN c2", "lacks a column that it has upstream"),
        ("ALTER TABLE s.t ADD COLUMN c3 INT NOT NULL", "a column that rows upstream lack"),
    ],
)
def test_a_table_that_does_not_fit_stops_the_feed_with_its_reason(db: MariaDb, sinks: Any, statement: str, says: str) -> None:
    db.run(statement)
    sink = sinks()
    sink.begin(1)
    sink.deliver(change(KIND_INSERT, 1, 1, LATER + 1))
    with pytest.raises(SinkError, match=says) as caught:
        sink.task.flush()
    assert not caught.value.retryable


def test_a_server_that_is_away_is_waited_for(sinks: Any) -> None:
    uri = parse_sink_uri("mysql://root@127.0.0.1:1/")
    with pytest.raises(SinkUnavailable, match=r"127\.0\.0\.1:1"):
        MysqlDriverSink(uri, fresh=False).begin_batch(BatchContext("feed", 1, 1, 1, 2))


def test_a_wrong_password_is_said(db: MariaDb) -> None:
    db.run("DROP USER IF EXISTS u", "CREATE USER u IDENTIFIED BY 'secret'", "GRANT ALL ON *.* TO u")
    for password, fine in (("secret", True), ("c2VjcmV0", True), ("wrong", False)):  # the second is its base64
        uri = f"mysql://u:{password}@127.0.0.1:{db.port}/?get-server-public-key=true"
        sink = MysqlDriverSink(parse_sink_uri(uri), fresh=False)
        if fine:
            sink.begin_batch(BatchContext("other", 1, 1, 1, 2))
        else:
            with pytest.raises(SinkError, match="User or password are wrong"):
                sink.begin_batch(BatchContext("other", 1, 1, 1, 2))
        sink.close()


def test_a_ddl_runs_once(db: MariaDb, sinks: Any) -> None:
    """The process ended after the DDL, before its own checkpoint: the rows below it would not fit any more."""
    sink = sinks()
    ctx = sink.begin(1)
    sink.deliver(change(KIND_INSERT, 1, 1, LATER + 1))
    sink.task.flush()
    sink.ddl("ALTER TABLE `s`.`t` DROP COLUMN `c2`")
    assert db.rows("SELECT changefeed, ddl_ts, table_id, finished FROM tidb_cdc.ddl_ts_v1") == [("feed", str(LATER + 10), 100, 1)]
    again = sinks()
    again.begin(2)
    again.deliver(change(KIND_INSERT, 1, 1, LATER + 1))
    again.task.flush()
    again.ddl("ALTER TABLE `s`.`t` DROP COLUMN `c2`")
    again.driver.finish_batch(replace(ctx, epoch=2))
    assert rows(db) == [(1,)]


def test_a_ddl_that_may_have_run_is_passed_over_if_the_catalogue_says_so(db: MariaDb, sinks: Any) -> None:
    sink = sinks()
    sink.begin(1)
    sink.ddl("RENAME TABLE `s`.`t` TO `s`.`v`")
    db.run("UPDATE tidb_cdc.ddl_ts_v1 SET finished = 0", "UPDATE tidb_cdc.tidemill_feed_v1 SET ddls = 0")  # killed before it was noted
    again = sinks()
    again.begin(2)
    again.ddl("RENAME TABLE `s`.`t` TO `s`.`v`")
    assert db.rows("SELECT COUNT(*) FROM s.v") == [(0,)]


def test_a_ddl_that_is_refused_names_the_way_out(db: MariaDb, sinks: Any) -> None:
    sink = sinks()
    sink.begin(1)
    with pytest.raises(SinkError, match=r"(?s)refuses a DDL: error 1146: .*CREATE INDEX.*event filter \(ignore-sql\).*changefeed resume"):
        sink.ddl("CREATE INDEX `i` ON `s`.`absent` (`a`)")
    sink.begin(2)
    sink.ddl("CREATE DATABASE `s`", type=Action.CREATE_SCHEMA, table="")  # is there: taken as done


def test_a_default_of_now_is_the_time_of_the_ddl(db: MariaDb, sinks: Any) -> None:
    db.run("INSERT INTO s.t VALUES (1, 1)")
    sink = sinks()
    sink.begin(1)
    sink.ddl("ALTER TABLE `s`.`t` ADD COLUMN `d` TIMESTAMP DEFAULT CURRENT_TIMESTAMP()", start_ts=1_600_000_000_000 << 18)
    assert db.rows("SELECT UNIX_TIMESTAMP(d) FROM s.t") == [(1_600_000_000,)]
