"""The half of the sink in the driver: attempts, DDLs, the books."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from tidemill.config.database import Atomicity
from tidemill.config.uri import SinkUri
from tidemill.errors import Fenced, SameUpstreamDownstream
from tidemill.sinks.base import BatchContext, ByDispatchers, FenceCheck, no_fence_check, taken_late
from tidemill.sinks.mysql.bookkeeping import Attempt, Awaited, Beside, Books, Done
from tidemill.sinks.mysql.connection import Connection, ServerFault
from tidemill.sinks.mysql.control import Ddl, zone_text
from tidemill.sinks.mysql.ddls.running import Background, Running
from tidemill.sinks.mysql.known import cluster_id_of
from tidemill.sinks.mysql.sync.moments import is_sync_point
from tidemill.sinks.mysql.sync.points import SyncPoints
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tso import describe
from tidemill.visible import short_statement

log = logging.getLogger(__name__)

DDL_LIMIT_MS = 24 * 3_600_000
"""How long an answer to a DDL may take."""

_T = TypeVar("_T")


class MysqlDriverSink(ByDispatchers):
    """The targets of rows are only shares of the work: `worker-count` partitions of one topic."""

    def __init__(self, uri: SinkUri, *, fresh: bool) -> None:
        self._uri, self._options, self._fresh = uri, uri.database, fresh
        self._connection: Connection | None = None
        self._books: Books | None = None
        self._sync_points: SyncPoints | None = None
        self._attempt: Attempt | None = None
        self._check_fence: FenceCheck = no_fence_check  # of the attempt
        self._left: list[Ddl] = []  # DDLs that an earlier process had going on beside the rows
        self._ddls = 0  # of the attempt's interval, so far
        self._stop = threading.Event()
        self._background = Background(self._new_connection, lambda ddl: Beside(self._the_books, ddl))
        self._zone = ""  # in which DDLs are run
        self._again = False  # the interval was begun before, and its rows are written

    @property
    def _where(self) -> str:
        return f"{self._options.host}:{self._options.port}"

    def ensure_topics(self, topics: set[str]) -> dict[str, int]:
        return dict.fromkeys(topics, 1 if self._options.atomicity is Atomicity.GLOBAL else self._options.workers)

    def _call(self, ask: Callable[[], _T]) -> _T:
        """Call, and give up the connection if that fails. Raises SinkError, SinkUnavailable, Fenced.

        A driver that was frozen while it opened the books takes them from its successor when it wakes, and ends at the fence. So whoever
        loses the books reads the fence, and takes them back if that still holds.
        """
        try:
            return ask()
        except Fenced as error:
            self._close()
            unavailable = taken_late(self._check_fence, f"{self._where}: {error.message}")
            self._books = None
            raise unavailable from error
        except ServerFault as fault:
            self._close()
            raise fault.error(self._where) from fault
        except BaseException:
            self._close()
            raise

    def _open(self, ctx: BatchContext) -> Books:
        if self._connection is None:
            self._connection = self._new_connection()
            log.info("%s is %s", self._where, self._connection.server.version)
            self._refuse_upstream(self._connection, ctx.cluster_id)
        if self._books is None:
            books = Books(self._connection, ctx.feed, self._options.workers, ctx.started_ts, fresh=self._fresh)
            ctx.check_fence(now=True)  # only now: one that was checked before may be another driver's since
            self._books, self._fresh = books, False
            self._left = self._books.remembered()
            for ddl in self._left:
                log.info("DDL at %s goes on: %s", describe(ddl.ts), short_statement(ddl.query))
                self._background.start(ddl)
            if self._options.sync_point_every:
                self._sync_points = SyncPoints(ctx.feed, self._options.sync_point_retention)
                self._sync_points.prepare(self._connection)
        self._books.connection = self._connection
        return self._books

    def _refuse_upstream(self, connection: Connection, cluster_id: str) -> None:
        if cluster_id and cluster_id_of(connection) == cluster_id:
            raise SameUpstreamDownstream(
                f"{self._where} is the cluster {cluster_id}, whose changes are delivered: they would be captured and delivered without end",
                hint="Name another database in the sink URI. Two clusters that replicate into each other need bdr-mode.",
            )

    def begin_batch(self, ctx: BatchContext) -> None:
        self._check_fence, self._zone = ctx.check_fence, zone_text(ctx.zone, self._options.time_zone)

        def begin() -> Attempt:
            books = self._open(ctx)
            self._look_at_background(books)
            return books.begin(ctx.epoch, ctx.from_ts, ctx.to_ts, self._stop)

        self._attempt = self._call(begin)
        self._again, self._ddls = self._attempt.done >= Done.ROWS, 0
        if self._again:
            log.info("the rows of (%s, %s] are in the database already", describe(ctx.from_ts), describe(ctx.to_ts))

    def ddl(self, event: DdlEvent, topic: str) -> bool:
        """Run a DDL, unless it was run before."""
        assert self._attempt is not None, "begin_batch comes first"
        ddl = Ddl.of(event, self._zone)
        if ddl is None:
            return False
        self._call(lambda: self._run_ddl(ddl))
        self._ddls += 1
        return True

    def _run_ddl(self, ddl: Ddl) -> None:
        books, attempt = self._books, self._attempt
        assert books is not None
        assert attempt is not None
        if self._ddls == 0 and attempt.done is Done.NOTHING:
            books.mark_rows()
        if attempt.done is Done.ALL or (self._again and self._ddls < attempt.ddls):
            log.info("DDL at %s was run before: %s", describe(ddl.ts), short_statement(ddl.query))
            return
        self._background.settle(ddl.tables, self._stop)
        self._look_at_background(books)
        if ddl.beside:
            self._run_beside(books, ddl)
        else:
            Running(ddl, self._the_connection, Awaited(books), keep=True).await_end(self._stop)

    def _run_beside(self, books: Books, ddl: Ddl) -> None:
        """Run a DDL, and go on when it takes long. It is remembered first, so that it is never lost."""
        if ddl not in self._left:  # an earlier process remembered it, and it is run already
            books.remember(ddl)
            running = self._background.start(ddl)
            running.over.wait(self._options.async_ddl_timeout / 1000)
            if not running.over.is_set():
                log.info("DDL at %s goes on while rows are written: %s", describe(ddl.ts), short_statement(ddl.query))
            self._look_at_background(books)
        books.count(ddl)

    def _look_at_background(self, books: Books) -> None:
        for ddl, error in self._background.ended():
            books.forget(ddl)
            if error is not None:
                self._left = [one for one in self._left if one != ddl]
                raise error

    def _the_connection(self) -> Connection:
        assert self._connection is not None
        return self._connection

    @property
    def _the_books(self) -> Books:
        assert self._books is not None
        return self._books

    def _new_connection(self) -> Connection:
        return Connection(replace(self._options, read_timeout=DDL_LIMIT_MS))

    def heed(self, stop: threading.Event) -> None:
        """A DDL that everything waits for is killed when a stop is asked for."""
        self._stop = stop

    def resolved(self, ts: int) -> None: ...

    def finish_batch(self, ctx: BatchContext) -> None:
        """Note that the interval is done."""
        books = self._books
        assert books is not None, "begin_batch comes first"
        points = self._sync_points if is_sync_point(ctx.to_ts, self._options.sync_point_every) else None
        if self._attempt is not None and self._attempt.done is not Done.ALL:
            self._call(lambda: books.finish(ctx.to_ts, points))

    def discard(self, ctx: BatchContext) -> None:
        """Nothing: the next attempt waits until the transactions of this one are over."""

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        self._close()
