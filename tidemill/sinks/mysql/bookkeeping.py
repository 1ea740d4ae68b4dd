"""What Tidemill keeps in the database, in `tidb_cdc`: the fence of each changefeed, and how far its rows and DDLs are.

    tidemill_feed_v1    a row for each changefeed: the newest driver (generation) and attempt (epoch), its interval, what is done of it
    tidemill_lane_v1    the fence again, a row for each connection that may write: a transaction locks the row of its own
    ddl_ts_v1           TiCDC's table: the DDL that a table was brought to, and whether it is done
    tidemill_ddl_v1     DDLs that go on beside the rows (ADD INDEX), until they are done

A transaction of rows begins with a lock on its lane's row, which must name its attempt. A new attempt changes all of these rows. So it
begins when no transaction of an older one is open, and none of these can commit later, wherever its task is.

With transaction-atomicity=global the transaction locks the changefeed's row instead, and moves `checkpoint_ts` in it to the last ts whose
rows it has. What lies at or below `checkpoint_ts` is in the database, whatever ended when.
"""

from __future__ import annotations

import enum
import hashlib
import logging
from dataclasses import dataclass

from tidemill.errors import Fenced
from tidemill.sinks.mysql.connection import Connection, ServerFault
from tidemill.sinks.mysql.control import Ddl
from tidemill.sinks.mysql.sync.points import SyncPoints

log = logging.getLogger(__name__)

HOLD_WAIT_S = 10
"""How long the connection of an earlier driver may take to end."""
NO_SUCH_THREAD, NOT_OWNER, LOCK_WAIT = 1094, 1095, 1205
"""Codes of MySQL."""
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
)

_RUNNING = f"{SCHEMA}.tidemill_ddl_v1"
_FEED = f"{SCHEMA}.tidemill_feed_v1"
_LANE = f"{SCHEMA}.tidemill_lane_v1"
_DDL = f"{SCHEMA}.ddl_ts_v1"


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
    """The driver's side. All methods raise ServerFault."""

    def __init__(self, connection: Connection, feed: str, lanes: int, now_ts: int, *, fresh: bool) -> None:
        """Become the driver of a changefeed: transactions of every other one are refused from now on. `now_ts`: rows at or below it are
        written as if they may have been written before. `fresh`: forget what is done."""
        self.connection, self._feed, self._now_ts = connection, feed, now_ts
        names = ",".join(f"'{table.rpartition('.')[2]}'" for table in (_FEED, _LANE, _DDL, _RUNNING))
        asked = f"SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '{SCHEMA}' AND table_name IN ({names})"
        if connection.rows(asked)[0][0] < len(CREATE) - 1:
            for statement in CREATE:
                connection.run(statement)
        if fresh:
            connection.run(f"DELETE FROM {_FEED} WHERE changefeed = %s", feed)
            connection.run(f"DELETE FROM {_DDL} WHERE changefeed = %s", feed)
            connection.run(f"DELETE FROM {_RUNNING} WHERE changefeed = %s", feed)
        connection.run(f"INSERT IGNORE INTO {_FEED} VALUES (%s, 0, 0, 0, 0, 0, 0, 0, 0, 0, DEFAULT)", feed)
        connection.commit()
        known = connection.rows(f"SELECT generation FROM {_FEED} WHERE changefeed = %s FOR UPDATE", feed)
        before = connection.rows(f"SELECT MAX(generation) FROM {_LANE} WHERE changefeed = %s", feed)[0][0] or 0
        self._generation = max(int(known[0][0]), int(before)) + 1
        connection.run(f"UPDATE {_FEED} SET generation = %s WHERE changefeed = %s", self._generation, feed)
        rows = ",".join(f"(%s,{lane},0,0)" for lane in range(lanes))
        connection.run(f"INSERT IGNORE INTO {_LANE} VALUES {rows}", *[feed] * lanes)
        connection.run(f"UPDATE {_LANE} SET generation = %s, epoch = 0 WHERE changefeed = %s", self._generation, feed)
        connection.commit()

    def hold(self) -> None:
        """End the connection of an earlier driver, and let the next driver end this one: a process that froze before it sent a DDL must not
        send it when it goes on. A lock of the server, which ends with its connection, says which one that is. TiDB cannot tell who holds
        a lock: there nothing is ended. Raises Fenced, ServerFault."""
        self._check()
        self.connection.commit()
        if self.connection.server.is_tidb:
            return
        name = f"tidemill {hashlib.sha256(self._feed.encode()).hexdigest()[:48]}"  # the server takes 64 letters
        (holder,) = self.connection.rows("SELECT IS_USED_LOCK(%s)", name)[0]
        if holder is not None:
            try:
                self.connection.run(f"KILL {int(holder)}")
            except ServerFault as fault:
                if fault.code == NOT_OWNER:
                    log.warning("connection %d of an earlier driver of %s is another user's: it is not ended", int(holder), self._feed)
                    return
                if fault.code != NO_SUCH_THREAD:
                    raise
        (held,) = self.connection.rows(f"SELECT GET_LOCK(%s, {HOLD_WAIT_S})", name)[0]
        if held != 1:
            raise ServerFault(LOCK_WAIT, f"the connection of an earlier driver of {self._feed} is not over after {HOLD_WAIT_S} s")

    def _check(self) -> None:
        """Lock the changefeed's row. Raises Fenced if another driver has it."""
        known = self.connection.rows(f"SELECT generation FROM {_FEED} WHERE changefeed = %s FOR UPDATE", self._feed)
        if not known or int(known[0][0]) != self._generation:
            self.connection.rollback()
            raise Fenced(f"another driver has taken over changefeed {self._feed} in the database")

    def begin(self, epoch: int, from_ts: int, to_ts: int) -> Attempt:
        """Put an attempt over an interval in force. Waits for the open transactions of earlier ones. Raises Fenced."""
        c, feed = self.connection, self._feed
        columns = "generation, epoch, from_ts, to_ts, done, ddls, attempted_ts, checkpoint_ts"
        row = c.rows(f"SELECT {columns} FROM {_FEED} WHERE changefeed = %s FOR UPDATE", feed)
        if not row or int(row[0][0]) != self._generation:
            raise Fenced(f"another driver has taken over changefeed {feed} in the database")
        _, before, known_from, known_to, done, ddls, attempted, checkpoint = map(int, row[0])
        again = (known_from, known_to) == (from_ts, to_ts) and epoch > before
        safe_ts = max(self._now_ts, attempted)
        if again:
            attempt = Attempt(self._generation, epoch, safe_ts, Done(done), ddls, checkpoint)
        else:  # a checkpoint above the interval's begin: somebody wants what lies between again
            attempt = Attempt(self._generation, epoch, safe_ts, Done.NOTHING, 0, min(checkpoint, from_ts))
        c.run(
            f"UPDATE {_FEED} SET epoch = %s, from_ts = %s, to_ts = %s, done = %s, ddls = %s, attempted_ts = %s, safe_ts = %s, "
            "checkpoint_ts = %s WHERE changefeed = %s",
            *(epoch, from_ts, to_ts, int(attempt.done), attempt.ddls, max(attempted, to_ts), safe_ts, attempt.checkpoint_ts, feed),
        )
        c.run(f"UPDATE {_LANE} SET epoch = %s WHERE changefeed = %s", epoch, feed)
        c.commit()
        return attempt

    def mark(self, done: Done, checkpoint_ts: int | None = None) -> None:
        """Note what is done of the interval. Raises Fenced."""
        more = f", checkpoint_ts = {int(checkpoint_ts)}" if checkpoint_ts is not None else ""
        changed = self.connection.run(
            f"UPDATE {_FEED} SET done = %s{more} WHERE changefeed = %s AND generation = %s", int(done), self._feed, self._generation
        )
        if not changed:
            self.connection.rollback()
            raise Fenced(f"another driver has taken over changefeed {self._feed} in the database")
        self.connection.commit()

    def finish(self, checkpoint_ts: int, points: SyncPoints | None) -> None:
        """Note that all of the interval is done, and in the same transaction its end as a sync point, if it is one. Raises Fenced."""
        if points is not None:
            points.write(self.connection, checkpoint_ts)
        self.mark(Done.ALL, checkpoint_ts)
        if points is not None:
            points.clean(self.connection)

    def begun(self, table_id: int, ts: int) -> bool:
        """Return whether the DDL of a table at ts was begun, and perhaps run."""
        row = self.connection.rows(
            f"SELECT 1 FROM {_DDL} WHERE ticdc_cluster_id = %s AND changefeed = %s AND table_id = %s AND ddl_ts = %s AND finished = 0",
            *(CLUSTER, self._feed, table_id, str(ts)),
        )
        self.connection.commit()
        return bool(row)

    def note_ddl(self, table_id: int, ts: int, *, finished: bool, count: int) -> None:
        """Note that a DDL begins, or that it is done. `count`: how many of the interval are done. Raises Fenced: a DDL of a driver that has
        been overtaken is not to run, and one that has run is not its own to note."""
        self._check()
        values = (CLUSTER, self._feed, str(ts), table_id, int(finished))
        columns = "ticdc_cluster_id, changefeed, ddl_ts, table_id, finished, is_syncpoint"
        self.connection.run(f"REPLACE INTO {_DDL} ({columns}) VALUES (%s, %s, %s, %s, %s, 0)", *values)
        self.connection.run(f"UPDATE {_FEED} SET ddls = %s WHERE changefeed = %s", count, self._feed)
        self.connection.commit()

    def remember(self, ddl: Ddl) -> None:
        """Note a DDL that goes on beside the rows."""
        values = (self._feed, ddl.ts, ddl.table_id, ddl.text())
        self.connection.run(f"REPLACE INTO {_RUNNING} VALUES (%s, %s, %s, %s)", *values)
        self.connection.commit()

    def forget(self, ddl: Ddl) -> None:
        """Note that it is over."""
        place = (self._feed, ddl.ts, ddl.table_id)
        self.connection.run(f"DELETE FROM {_RUNNING} WHERE changefeed = %s AND ts = %s AND table_id = %s", *place)
        self.connection.commit()

    def remembered(self) -> list[Ddl]:
        """Return those that an earlier process has left, in order."""
        rows = self.connection.rows(f"SELECT ddl FROM {_RUNNING} WHERE changefeed = %s ORDER BY ts", self._feed)
        self.connection.commit()
        return [Ddl.parse(text.encode()) for (text,) in rows]


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
