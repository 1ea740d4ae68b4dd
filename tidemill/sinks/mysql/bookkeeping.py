"""What Tidemill keeps in the database, in `tidb_cdc`: the fence of each changefeed, and how far its rows and DDLs are.

    tidemill_feed_v1    a row for each changefeed: the newest driver (generation) and attempt (epoch), its interval, what is done of it
    tidemill_lane_v1    the fence again, a row for each connection that may write: a transaction locks the row of its own
    ddl_ts_v1           TiCDC's table: the DDL that a table was brought to, and whether it is done
    tidemill_ddl_v1     DDLs that go on beside the rows (ADD INDEX), until they are done
    tidemill_plan_v1    DDLs that were begun, with the state before them, until they are done

A transaction of rows begins with a lock on its lane's row, which must name its attempt. A new attempt changes all of these rows. So it
begins when no transaction of an older one is open, and none of these can commit later, wherever its task is.

With transaction-atomicity=global the transaction locks the changefeed's row instead, and moves `checkpoint_ts` in it to the last ts whose
rows it has. What lies at or below `checkpoint_ts` is in the database, whatever ended when.

What holds, whichever driver sleeps, dies or loses an answer where:

1. Every driver has a generation of its own, every attempt an epoch. A statement over these tables stands in a transaction that has locked
   the changefeed's row and seen its own generation and epoch there (`Books.transaction`); what goes on beside the rows sees the generation.
2. A DDL runs under a lock of the server (`ddls/lock.py`), with 1 seen under the lock, so also behind every wait.
3. A new driver writes its generation, and a new attempt its epoch, before it takes that lock once. So when `begin` returns no DDL of an
   older driver or attempt runs, and none can start.
4. The steps of an interval are rows, done=ROWS, and for each DDL: plan, DDL, ddls+1. A step is done only when all before it are noted. So
   an attempt that finds done=ROWS writes no rows, and runs the DDLs from number `ddls` on.
5. A DDL that has a plan may have run: it is compared with the state that the plan holds (`ddls/state.py`), never run on trust.
6. Nothing moves back: checkpoint_ts, ddl_ts_v1 and tidb_external_ts are compared before they are written. Only `begin` sets checkpoint_ts
   back, to the begin of an interval that starts below it although all was done: somebody wants it again, and a warning says so.
   Where an attempt begins before an interval that was written in part (global) it is refused: what of it is there nobody would know.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tidemill.errors import Fenced, SinkError
from tidemill.sinks.mysql.connection import Connection, ServerFault
from tidemill.sinks.mysql.control import Ddl
from tidemill.sinks.mysql.ddls.lock import held, lock_name
from tidemill.sinks.mysql.ddls.plans import TABLE as PLANS
from tidemill.sinks.mysql.ddls.plans import Plans
from tidemill.sinks.mysql.sync.points import SyncPoints
from tidemill.tso import describe

log = logging.getLogger(__name__)

SCHEMA = "tidb_cdc"
CLUSTER = "default"
"""TiCDC's name of its own cluster, in `ddl_ts_v1`."""

CREATE = (
    f"CREATE DATABASE IF NOT EXISTS {SCHEMA}",
    f"""CREATE TABLE IF NOT EXISTS {SCHEMA}.tidemill_feed_v1 (
  changefeed VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
  generation BIGINT UNSIGNED NOT NULL,
  epoch BIGINT UNSIGNED NOT NULL,
  from_ts BIGINT UNSIGNED NOT NULL,
  to_ts BIGINT UNSIGNED NOT NULL,
  done TINYINT NOT NULL,
  ddls INT NOT NULL,
  attempted_ts BIGINT UNSIGNED NOT NULL,
  safe_ts BIGINT UNSIGNED NOT NULL,
  checkpoint_ts BIGINT UNSIGNED NOT NULL,
  updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP)""",
    f"""CREATE TABLE IF NOT EXISTS {SCHEMA}.tidemill_lane_v1 (
  changefeed VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  lane INT NOT NULL,
  generation BIGINT UNSIGNED NOT NULL,
  epoch BIGINT UNSIGNED NOT NULL,
  PRIMARY KEY (changefeed, lane))""",
    f"""CREATE TABLE IF NOT EXISTS {SCHEMA}.ddl_ts_v1 (
  ticdc_cluster_id VARCHAR(191) NOT NULL,
  changefeed VARCHAR(191) NOT NULL,
  ddl_ts VARCHAR(18) NOT NULL,
  table_id BIGINT NOT NULL,
  finished BOOL NOT NULL,
  is_syncpoint BOOL NOT NULL,
  PRIMARY KEY (ticdc_cluster_id, changefeed, table_id))""",
    f"""CREATE TABLE IF NOT EXISTS {SCHEMA}.tidemill_ddl_v1 (
  changefeed VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  ts BIGINT UNSIGNED NOT NULL,
  table_id BIGINT NOT NULL,
  ddl LONGTEXT CHARACTER SET utf8mb4 NOT NULL,
  PRIMARY KEY (changefeed, ts, table_id))""",
    Plans(SCHEMA, "").create,
)

_RUNNING = f"{SCHEMA}.tidemill_ddl_v1"
_FEED = f"{SCHEMA}.tidemill_feed_v1"
_LANE = f"{SCHEMA}.tidemill_lane_v1"
_DDL = f"{SCHEMA}.ddl_ts_v1"
_COLUMNS = "generation, epoch, from_ts, to_ts, done, ddls, attempted_ts, checkpoint_ts"


class Done(enum.IntEnum):
    """What is done of an interval."""

    NOTHING = 0
    ROWS = 1
    ALL = 2


@dataclass(frozen=True, slots=True)
class Attempt:
    """The attempt in force."""

    generation: int
    epoch: int
    safe_ts: int  # rows at or below it may have been written before
    done: Done
    ddls: int = 0  # of the interval that are done
    checkpoint_ts: int = 0  # at or below it all is written


class Books:
    """The driver's side. All methods raise ServerFault, and Fenced when another driver has taken over."""

    def __init__(self, connection: Connection, feed: str, lanes: int, now_ts: int, *, fresh: bool) -> None:
        """Become the driver of a changefeed: transactions and DDLs of every other one are refused from now on. `now_ts`: rows at or below
        it are written as if they may have been written before. `fresh`: forget what is done."""
        self.connection, self.feed, self._now_ts = connection, feed, now_ts
        self.plans = Plans(SCHEMA, feed)
        self._epoch = 0
        names = ",".join(f"'{table.rpartition('.')[2]}'" for table in (_FEED, _LANE, _DDL, _RUNNING, PLANS))
        asked = f"SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '{SCHEMA}' AND table_name IN ({names})"
        if connection.rows(asked)[0][0] < len(CREATE) - 1:
            for statement in CREATE:
                connection.run(statement)
        self._generation = self._take_over(lanes, fresh=fresh)

    def _take_over(self, lanes: int, *, fresh: bool) -> int:
        connection, feed = self.connection, self.feed
        connection.run("BEGIN")
        if fresh:
            for table in (_FEED, _DDL, _RUNNING):
                connection.run(f"DELETE FROM {table} WHERE changefeed = %s", feed)
            self.plans.clear(connection)
        connection.run(f"INSERT IGNORE INTO {_FEED} VALUES (%s, 0, 0, 0, 0, 0, 0, 0, 0, 0, DEFAULT)", feed)
        connection.commit()
        known = connection.rows(f"SELECT generation, epoch FROM {_FEED} WHERE changefeed = %s FOR UPDATE", feed)
        before = connection.rows(f"SELECT MAX(generation) FROM {_LANE} WHERE changefeed = %s", feed)[0][0] or 0
        generation, self._epoch = max(int(known[0][0]), int(before)) + 1, int(known[0][1])
        connection.run(f"UPDATE {_FEED} SET generation = %s WHERE changefeed = %s", generation, feed)
        rows = ",".join(f"(%s,{lane},0,0)" for lane in range(lanes))
        connection.run(f"INSERT IGNORE INTO {_LANE} VALUES {rows}", *[feed] * lanes)
        connection.run(f"UPDATE {_LANE} SET generation = %s, epoch = 0 WHERE changefeed = %s", generation, feed)
        connection.commit()
        return generation

    @contextmanager
    def transaction(self, connection: Connection | None = None, *, of_attempt: bool = True) -> Iterator[tuple[int, ...]]:
        """Give the changefeed's row, locked, in a transaction of this driver, and of the attempt in force unless told otherwise. It is
        committed at the end."""
        c = connection or self.connection
        c.run("BEGIN")
        try:
            rows = c.rows(f"SELECT {_COLUMNS} FROM {_FEED} WHERE changefeed = %s FOR UPDATE", self.feed)
            row = tuple(map(int, rows[0])) if rows else (0, 0)
            if row[0] != self._generation or (of_attempt and row[1] != self._epoch):
                raise Fenced(f"another driver has taken over changefeed {self.feed} in the database")
            yield row
        except BaseException:
            with suppress(ServerFault):  # the session is gone, and the transaction with it
                c.rollback()
            raise
        c.commit()

    def begin(self, epoch: int, from_ts: int, to_ts: int, stop: threading.Event | None = None) -> Attempt:
        """Put an attempt over an interval in force. Waits for the open transactions of earlier ones, and for a DDL of theirs that runs.

        Raises SinkError for an interval that begins before one which was written in part, SinkUnavailable after a stop."""
        with self.transaction(of_attempt=False) as (_, before, known_from, known_to, done, ddls, attempted, checkpoint):
            again = (known_from, known_to) == (from_ts, to_ts) and epoch > before
            safe_ts = max(self._now_ts, attempted)
            if again:
                attempt = Attempt(self._generation, epoch, safe_ts, Done(done), ddls, checkpoint)
            else:
                known = Attempt(self._generation, before, safe_ts, Done(done), ddls, checkpoint)
                at = self._checkpoint_at(known, (known_from, known_to), from_ts)
                attempt = Attempt(self._generation, epoch, safe_ts, Done.NOTHING, 0, at)
            self.connection.run(
                f"UPDATE {_FEED} SET epoch = %s, from_ts = %s, to_ts = %s, done = %s, ddls = %s, attempted_ts = %s, safe_ts = %s, "
                "checkpoint_ts = %s WHERE changefeed = %s",
                *(epoch, from_ts, to_ts, int(attempt.done), attempt.ddls, max(attempted, to_ts), safe_ts, attempt.checkpoint_ts, self.feed),
            )
            self.connection.run(f"UPDATE {_LANE} SET epoch = %s WHERE changefeed = %s", epoch, self.feed)
        self._epoch = epoch
        with held(self.connection, self.lock, self._check, stop or threading.Event()):
            pass  # no DDL of an earlier attempt or driver runs any more
        return attempt

    def _checkpoint_at(self, known: Attempt, interval: tuple[int, int], from_ts: int) -> int:
        """Return the checkpoint for an attempt over another interval than the known one. Raises SinkError."""
        begin, end = interval
        checkpoint = known.checkpoint_ts
        if from_ts >= checkpoint:
            return checkpoint
        if known.done is Done.ALL or checkpoint <= begin:
            log.warning(
                "changefeed %s: (%s, %s] is in the database and is wanted again: its checkpoint_ts goes back",
                *(self.feed, describe(from_ts), describe(checkpoint)),
            )
            return from_ts
        if from_ts >= begin:
            return checkpoint  # whole transactions up to there are in the database
        raise SinkError(
            f"changefeed {self.feed} is to be written from {describe(from_ts)} on, but of ({begin}, {end}] the database has what lies at "
            f"or below {describe(checkpoint)}: rows of tables without a key would come twice",
            hint=f"To go on where it was: `tidemill changefeed resume --overwrite-checkpoint-ts {begin}`. To write all again: "
            f"DELETE FROM {_FEED} WHERE changefeed = '{self.feed}', then resume.",
        )

    # Notes

    def mark_rows(self) -> None:
        """Note that the rows of the interval are written."""
        with self.transaction() as row:
            self._mark(max(Done.ROWS, Done(row[4])))

    def _mark(self, done: Done, checkpoint_ts: int = 0) -> None:
        self.connection.run(
            f"UPDATE {_FEED} SET done = %s, checkpoint_ts = GREATEST(checkpoint_ts, %s) WHERE changefeed = %s",
            *(int(done), checkpoint_ts, self.feed),
        )

    def finish(self, checkpoint_ts: int, points: SyncPoints | None) -> None:
        """Note that all of the interval is done, and in the same transaction its end as a sync point, if it is one."""
        with self.transaction():
            if points is not None:
                points.write(self.connection, checkpoint_ts)
            self._mark(Done.ALL, checkpoint_ts)
        if points is not None:
            with self.transaction():
                points.clean(self.connection)

    # DDLs: a `ddls.plans.Writer`

    @property
    def lock(self) -> str:
        """The lock under which the DDLs run that everything waits for."""
        return lock_name(SCHEMA, self.feed)

    def _check(self, connection: Connection) -> None:
        with self.transaction(connection):
            pass

    def begin_ddl(self, connection: Connection, ddl: Ddl, before: str) -> None:
        """Note in the open transaction that a DDL begins."""
        self.plans.begin(connection, ddl, before)
        self._note(connection, ddl, finished=False)

    def finish_ddl(self, connection: Connection, ddl: Ddl) -> None:
        """Note in the open transaction that it is done."""
        self.plans.drop(connection, ddl)
        self._count(connection, ddl)

    def _note(self, connection: Connection, ddl: Ddl, *, finished: bool) -> None:
        """Note a DDL in TiCDC's table, unless a later one is there."""
        columns = "ticdc_cluster_id, changefeed, ddl_ts, table_id, finished, is_syncpoint"
        newer = f"CAST({_DDL}.ddl_ts AS UNSIGNED) > CAST(VALUES(ddl_ts) AS UNSIGNED)"
        connection.run(
            f"INSERT INTO {_DDL} ({columns}) VALUES (%s, %s, %s, %s, %s, 0) ON DUPLICATE KEY UPDATE "
            f"finished = IF({newer}, {_DDL}.finished, VALUES(finished)), ddl_ts = IF({newer}, {_DDL}.ddl_ts, VALUES(ddl_ts))",
            *(CLUSTER, self.feed, str(ddl.ts), ddl.table_id, int(finished)),
        )

    def remember(self, ddl: Ddl) -> None:
        """Note a DDL that goes on beside the rows: from now on every process runs it until it is done."""
        with self.transaction():
            values = (self.feed, ddl.ts, ddl.table_id, ddl.text())
            self.connection.run(f"REPLACE INTO {_RUNNING} VALUES (%s, %s, %s, %s)", *values)
            self._note(self.connection, ddl, finished=False)

    def count(self, ddl: Ddl) -> None:
        """Note that it need not be waited for: it counts as done of the interval."""
        with self.transaction():
            self._count(self.connection, ddl)

    def _count(self, connection: Connection, ddl: Ddl) -> None:
        self._note(connection, ddl, finished=True)
        connection.run(f"UPDATE {_FEED} SET ddls = ddls + 1 WHERE changefeed = %s", self.feed)

    def forget(self, ddl: Ddl) -> None:
        """Note that it is over."""
        with self.transaction():
            place = (self.feed, ddl.ts, ddl.table_id)
            self.connection.run(f"DELETE FROM {_RUNNING} WHERE changefeed = %s AND ts = %s AND table_id = %s", *place)
            self.plans.drop(self.connection, ddl)

    def remembered(self) -> list[Ddl]:
        """Return those that an earlier process has left, in order."""
        with self.transaction(of_attempt=False):
            rows = self.connection.rows(f"SELECT ddl FROM {_RUNNING} WHERE changefeed = %s ORDER BY ts", self.feed)
        return [Ddl.parse(text.encode()) for (text,) in rows]


@dataclass(frozen=True, slots=True)
class Awaited:
    """The writer of DDLs that everything waits for."""

    books: Books

    @property
    def lock(self) -> str:
        """See `Writer`."""
        return self.books.lock

    @property
    def plans(self) -> Plans:
        """See `Writer`."""
        return self.books.plans

    @contextmanager
    def transaction(self, connection: Connection) -> Iterator[None]:
        """See `Writer`."""
        with self.books.transaction(connection):
            yield

    def begin(self, connection: Connection, ddl: Ddl, before: str) -> None:
        """See `Writer`."""
        self.books.begin_ddl(connection, ddl, before)

    def finish(self, connection: Connection, ddl: Ddl) -> None:
        """See `Writer`."""
        self.books.finish_ddl(connection, ddl)


@dataclass(frozen=True, slots=True)
class Beside:
    """The writer of one DDL that goes on beside the rows, over attempts. Each has a lock of its own, as others run meanwhile."""

    books: Books
    ddl: Ddl

    @property
    def lock(self) -> str:
        """See `Writer`."""
        return lock_name(SCHEMA, self.books.feed, self.ddl.ts, self.ddl.table_id)

    @property
    def plans(self) -> Plans:
        """See `Writer`."""
        return self.books.plans

    @contextmanager
    def transaction(self, connection: Connection) -> Iterator[None]:
        """See `Writer`."""
        with self.books.transaction(connection, of_attempt=False):
            yield

    def begin(self, connection: Connection, ddl: Ddl, before: str) -> None:
        """See `Writer`."""
        self.plans.begin(connection, ddl, before)

    def finish(self, connection: Connection, ddl: Ddl) -> None:
        """See `Writer`."""
        self.plans.finish(connection, ddl)


def attempt_in_force(connection: Connection, feed: str) -> Attempt | None:
    """Return the attempt that a task belongs to, if there is one. Raises ServerFault."""
    columns = "generation, epoch, safe_ts, done, ddls, checkpoint_ts"
    row = connection.rows(f"SELECT {columns} FROM {_FEED} WHERE changefeed = %s", feed)
    connection.commit()
    if not row:
        return None
    generation, epoch, safe_ts, done, ddls, checkpoint_ts = map(int, row[0])
    return Attempt(generation, epoch, safe_ts, Done(done), ddls, checkpoint_ts)


@dataclass(frozen=True, slots=True)
class Gate:
    """What a transaction of rows begins and ends with. `lock` finds one row if the transaction's attempt is in force, else none.

    `move`, if it is not empty, moves the checkpoint to `to_ts`. A lock that finds that ts, or a later one, says that the transaction was
    committed before.
    """

    lock: bytes
    move: bytes = b""
    to_ts: int = 0


def lane_gate(feed: str, lane: int, attempt: Attempt) -> Gate:
    """Return the gate of a lane's transactions."""
    return Gate(
        f"BEGIN;SELECT 0 FROM {_LANE} WHERE changefeed = {_quoted(feed)} AND lane = {lane} AND {_in_force(attempt)} FOR UPDATE".encode()
    )


def checkpoint_gate(feed: str, attempt: Attempt, to_ts: int) -> Gate:
    """Return the gate of a transaction after which all up to `to_ts` is in the database. 0: the checkpoint stays."""
    where = f"WHERE changefeed = {_quoted(feed)} AND {_in_force(attempt)}"
    lock = f"BEGIN;SELECT checkpoint_ts FROM {_FEED} {where} FOR UPDATE"
    move = f"UPDATE {_FEED} SET checkpoint_ts = {int(to_ts)} {where}" if to_ts else ""
    return Gate(lock.encode(), move.encode(), to_ts)


def _in_force(attempt: Attempt) -> str:
    return f"generation = {attempt.generation} AND epoch = {attempt.epoch}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
