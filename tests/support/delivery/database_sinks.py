"""The two halves of the sink of databases, fed with rows by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from tests.support.schema.tables import column, ddl_event, table, table_version
from tests.support.servers.mariadb import MariaDb
from tidemill.config.uri import parse_sink_uri
from tidemill.errors import Fenced
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord, row_array
from tidemill.kernels.sql import SqlRowEncoder
from tidemill.protocols.options import EncodingOptions
from tidemill.records import KIND_DELETE, KIND_INSERT
from tidemill.sinks.base import BatchContext, FenceCheck, no_fence_check
from tidemill.sinks.mysql.driver import MysqlDriverSink
from tidemill.sinks.mysql.task import MysqlTaskSink
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows.write import pack_row
from tidemill.tidb.schema.codes import MySQLType

INFO = table([column(MySQLType.LONGLONG), column(MySQLType.LONGLONG)], pk_is_handle=True)
KEYLESS = table([column(MySQLType.LONGLONG), column(MySQLType.LONGLONG)])
TABLES = (("t", INFO, 100), ("u", INFO, 101), ("k", KEYLESS, 102))
"""Name, definition and id of tables in the database `s`: two with a key, one without."""
CREATE = (
    "CREATE DATABASE s",
    "CREATE TABLE s.t (c1 BIGINT PRIMARY KEY, c2 BIGINT UNIQUE)",
    "CREATE TABLE s.u (c1 BIGINT PRIMARY KEY, c2 BIGINT)",
    "CREATE TABLE s.k (c1 BIGINT, c2 BIGINT)",
)
STARTED = 1000
"""The upstream's time at which a changefeed starts, unless a test gives another."""
LATER = 550_000_000_000_000_000
"""A ts long after that, in 2036: rows above it were never written before. A TiDB's `timestamp` ends in 2038."""


def fence(taken: list[bool]) -> FenceCheck:
    """A fence that another driver takes when `taken` has something in it. Until it is read again its last answer counts, as that of a fence
    on an object store does."""

    def check(*, now: bool = False) -> None:
        if now and taken:
            raise Fenced("another driver has taken the changefeed over")

    return check


def change(kind: int, key: int, value: int, commit_ts: int, number: int = 0) -> tuple[int, RawRecord]:
    """A change of a row of the table with that number."""
    keyless = TABLES[number][1] is KEYLESS
    image = pack_row({1: key.to_bytes(8, "little"), 2: value.to_bytes(8, "little")} if keyless else {2: value.to_bytes(8, "little")})
    new, old = (image if kind != KIND_DELETE else None), (image if kind != KIND_INSERT else None)
    return kind, RawRecord(record_key(TABLES[number][2], key), new, old, commit_ts - 1, commit_ts, number)


class Sink:
    """A driver and a task of one changefeed."""

    def __init__(self, db: MariaDb, parameters: str = "", *, fresh: bool = False) -> None:
        uri = parse_sink_uri(f"{db.uri}?worker-count=4&{parameters}")
        self.driver, self.task = MysqlDriverSink(uri, fresh=fresh), MysqlTaskSink(uri)
        self._encoder = SqlRowEncoder([TableProgram("s", name, info) for name, info, _ in TABLES], EncodingOptions(None))
        self._keep: list[object] = []

    def begin(
        self, epoch: int, from_ts: int = LATER, to_ts: int = LATER + 10, look: FenceCheck = no_fence_check, **more: Any
    ) -> BatchContext:
        """Begin an attempt."""
        ctx = BatchContext("feed", epoch, epoch, from_ts, to_ts, check_fence=look, **{"started_ts": STARTED, **more})
        self.driver.begin_batch(ctx)
        self.task.begin(replace(ctx, item=0))
        return ctx

    def deliver(self, *changes: tuple[int, RawRecord]) -> None:
        """Hand rows to the task."""
        rows, keep = row_array([record for _, record in changes])
        rows["kind"] = [kind for kind, _ in changes]
        self._keep = [rows, keep]
        self.task.deliver(self._encoder.encode(rows, np.array([0, len(rows)], np.int32)), [("t", 0)])

    def batch(self, epoch: int, *changes: tuple[int, RawRecord], from_ts: int = LATER, to_ts: int = LATER + 10, **more: Any) -> None:
        """Deliver a whole batch."""
        ctx = self.begin(epoch, from_ts, to_ts, **more)
        self.deliver(*changes)
        assert self.task.flush() == len(changes)
        self.driver.finish_batch(ctx)

    def ddl(self, query: str, ts: int = LATER + 10, **given: Any) -> None:
        """Hand a DDL of the table `t` to the driver."""
        event = replace(ddl_event(table_version("s", "t"), ts, query=query), **given)
        assert self.driver.ddl(event, "t")

    def close(self) -> None:
        """Close all connections."""
        self.task.abandon()
        self.driver.close()


@contextmanager
def made_of(db: MariaDb) -> Iterator[Any]:
    """Give a function that makes a Sink; all are closed at the end."""
    made: list[Sink] = []

    def make(*given: str, **more: bool) -> Sink:
        made.append(Sink(db, *given, **more))
        return made[-1]

    try:
        yield make
    finally:
        for sink in made:
            sink.close()


def statements_of(db: MariaDb) -> list[str]:
    """What the general log holds, statement by statement."""
    packets = db.rows("SELECT CONVERT(argument USING utf8mb4) FROM mysql.general_log WHERE command_type = 'Query' ORDER BY event_time")
    return [text.strip() for (packet,) in packets for text in packet.split(";") if text.strip()]
