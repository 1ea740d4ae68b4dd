"""A MySQL-compatible database as the outlet: rows, DDLs alone between them, and marks for loopback control.

The position is written after the rows, so that after a crash the rows of the last seconds are applied again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from tidemill.binlog.drainer.database.applying import Manner
from tidemill.binlog.drainer.database.database import BOOKS, Database, Session
from tidemill.binlog.drainer.picking.picking import MARK_SCHEMA, MARK_TABLE
from tidemill.binlog.drainer.rows.batching import Pieces
from tidemill.binlog.drainer.rows.encoding import RowEncoding
from tidemill.binlog.drainer.rows.reading import Rows
from tidemill.binlog.drainer.settings import DrainerSettings
from tidemill.binlog.outputs.ddl_text import read_ddl
from tidemill.binlog.outputs.named import NamedDdl, NamedRows, Told
from tidemill.binlog.outputs.transactions import DdlBinlog, Entry
from tidemill.binlog.outputs.writes import Work, Writers
from tidemill.config.database import Atomicity, MysqlOptions
from tidemill.sinks.mysql.ddls.plans import OneWriter
from tidemill.sinks.mysql.window import Window

SAFE_S = 300.0
"""Seconds after the start in which statements may be run again: a crash may have left some applied."""
WINDOW_ROWS, WINDOW_BYTES = 16_384, 32 << 20
"""Rows that are dealt out together, and the bytes of their texts; with whole transactions there may be more, up to a large one, whose
statements are made as they are sent."""
TOGETHER = 256
"""Transactions of a relay log that are applied together."""
SOME_COLUMNS = 2
"""The sync-mode in which the tables downstream may lack columns."""

_MARKS = f"{MARK_SCHEMA}.{MARK_TABLE}"


class MysqlOutlet:
    """See the module."""

    def __init__(self, settings: DrainerSettings, cluster_id: int | None) -> None:
        to = settings.to
        manner = Manner(settings.worker_count, settings.txn_batch, to.merge, apart=not settings.enable_dispatch)
        self._channel = settings.channel_id if settings.loopback_control else None
        self.database = Database(
            MysqlOptions(to.host, to.port, to.user, to.password, servers_key=True),
            Session(settings.sql_mode, to.params, to.zone),
            manner,
            None if self._channel is None else self._mark,
            OneWriter(BOOKS, f"drainer {cluster_id or 0}"),
        )
        self._always_safe, self._began = settings.safe_mode, time.monotonic()
        columns_of = self._columns_of if to.sync_mode == SOME_COLUMNS else None
        self._writers = Writers(hashed=manner.divided, columns_of=columns_of)
        self._encoding, self._whole = RowEncoding(columns_of), manner.whole
        self._marked = False

    @property
    def missed_rows(self) -> int:
        """How many rows were to be changed or deleted and were not there, since the start."""
        return self.database.missed_rows

    def _columns_of(self, schema: str, table: str) -> list[str] | None:
        known = self.database.find(schema, table)
        return None if known is None else [column.name for column in known.columns]

    def _mark(self, worker: int) -> bytes:
        """Return the statement by which a worker's transaction says who made it."""
        row = f"({worker}, {self._channel}, 1, '')"
        return f"INSERT INTO {_MARKS} (id, channel_id, val, channel_info) VALUES {row} ON DUPLICATE KEY UPDATE val = val + 1".encode()

    def _make_marks(self) -> None:
        connection = self.database.open()
        connection.run(f"CREATE DATABASE IF NOT EXISTS {MARK_SCHEMA}")
        connection.run(
            f"CREATE TABLE IF NOT EXISTS {_MARKS} (id bigint not null, channel_id bigint not null default 0, val bigint default 0, "
            "channel_info varchar(64), primary key (id, channel_id))"
        )
        connection.commit()

    def write(self, entries: Sequence[Entry]) -> None:
        """Apply entries in their order; all of them are committed when this returns. Raises SinkError, MalformedRow."""
        self.database.finish()
        rows: list[Work] = []
        for entry in entries:
            if not isinstance(entry, DdlBinlog):
                rows.append(self._writers.work(entry))
                continue
            self._apply(rows)
            rows = []
            ddl = entry.ddl
            self._ddl(entry.commit_ts, "" if ddl.names_database else ddl.schema, ddl.for_database or ddl.query, ddl.now, ddl.special)
        self._apply(rows)

    def write_rows(self, rows: Rows) -> None:
        """Apply rows. They are committed when the next call of any method returns that takes or flushes. Raises SinkError, MalformedRow."""
        self._prepare_marks()
        if isinstance(rows.batches, Pieces) and self._whole is not Atomicity.NONE:
            self.database.write_in_windows(lambda: self._windows(rows, Atomicity.NONE), rows.commit_ts, safe=self._is_safe)
            return
        for window in self._windows(rows, self._whole):
            self.database.begin(window, self._encoding.tables, safe=self._is_safe)

    def _windows(self, rows: Rows, whole: Atomicity) -> Iterator[Window]:
        """Yield rows window by window; `whole`: what has to be in one of them. Raises MalformedRow."""
        window = Window(whole)
        for chunk in self._encoding.chunks(rows):
            if self._is_full(window) and (whole is Atomicity.NONE or int(chunk.rows["commit_ts"][0]) > window.last_commit_ts):
                yield window
                window = Window(whole)
            window.add(chunk)
        if len(window):
            yield window

    @staticmethod
    def _is_full(window: Window) -> bool:
        return len(window) >= WINDOW_ROWS or window.bytes >= WINDOW_BYTES

    @property
    def _is_safe(self) -> bool:
        return self._always_safe or time.monotonic() - self._began < SAFE_S

    def write_told(self, told: Iterable[Told]) -> int:
        """Apply what a relay log tells, of which some may have been applied before. Returns the last commit ts, 0 if there is none.

        Raises SinkError, MalformedMessage.
        """
        works: list[Work] = []
        last = 0
        for one in told:
            last = one.commit_ts
            if isinstance(one, NamedRows):
                works.append(self.database.work(one, changed_since=True))
            if works and (isinstance(one, NamedDdl) or len(works) >= TOGETHER):
                self._apply(works)
                works = []
            if isinstance(one, NamedDdl):
                creates = read_ddl(one.query, one.schema).kind == "create database"
                self._ddl(one.commit_ts, "" if creates else one.schema, one.query, gone_before=True)
        self._apply(works)
        return last

    def _apply(self, works: list[Work]) -> None:
        self._prepare_marks()
        self.database.write(works, safe=self._is_safe)

    def _prepare_marks(self) -> None:
        if self._channel is not None and not self._marked:
            self.database.retrying(f"the table {_MARKS}", self._make_marks)
            self._marked = True

    def _ddl(
        self,
        commit_ts: int,
        schema: str,
        query: str,
        now: str = "",
        special: tuple[tuple[str, str], ...] = (),
        *,
        gone_before: bool = False,
    ) -> None:
        hint = f", which ignore-txn-commit-ts = [{commit_ts}] leaves out"
        self.database.ddl(commit_ts, schema, query, hint, now, special, gone_before=gone_before)
        self._writers.forget()
        self._encoding.forget()

    def flush(self) -> None:
        """Return when everything that was taken is committed. Raises SinkError."""
        self.database.finish()

    def close(self) -> None:
        """Close the connections."""
        self.database.close()
