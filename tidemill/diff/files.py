"""An SQLite file that `tidemill consume` keeps, as a downstream; and topics and the files of a storage sink, which are read into such a
file.

A file is only read: a consumer may go on writing to it.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, tzinfo
from itertools import islice
from pathlib import Path

from tidemill.config.uri import SinkUri
from tidemill.consumer.database import in_utc
from tidemill.consumer.kafka import KafkaTopics
from tidemill.consumer.order.progress import Progress
from tidemill.consumer.reading import reader
from tidemill.consumer.run import Consumer, Options
from tidemill.consumer.stored import NAMED, StoredTables, apply
from tidemill.consumer.tables.buffer import Stored
from tidemill.consumer.tables.catalog import Catalog
from tidemill.consumer.tables.moves import DdlApplier
from tidemill.consumer.tables.shapes import from_stored, quoted
from tidemill.consumer.tables.sqlite import SqliteTables
from tidemill.consumer.upstream import Upstream
from tidemill.diff.database import Known
from tidemill.diff.digest import Row, Sums, added, sums_of
from tidemill.diff.model import MOST_BUCKETS, DiffTable, Hashed
from tidemill.diff.rows import key_of
from tidemill.errors import SinkError
from tidemill.protocols.sql.literals import NULL, literal
from tidemill.tidb.names import folded, folded_table
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo

_FETCH = 4096
TOPICS = ("kafka", "kafka+ssl")
"""Schemes of topics."""
FILES = ("file", "s3")
"""Schemes of storage sinks."""


class SqliteFile:
    """The tables of a file. Raises SinkError."""

    is_remote = False
    server = None

    def __init__(self, path: str, zone: tzinfo = UTC) -> None:
        """`zone`: that of the TIMESTAMP values in it, which is the changefeed's."""
        self._path, self._zone = path, zone
        if not Path(path).is_file():
            raise SinkError(f"{path} is not there")
        try:
            self._connection = sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
            self._connection.execute("BEGIN")  # one state for everything that is read
            self._catalog = Catalog()
            DdlApplier(self._connection, self._catalog, zone, 0).load()
        except sqlite3.Error as error:
            raise SinkError(f"reading {path}: {error}") from error

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def flushed_ts(self) -> int:
        """Return the ts up to which the consumer has written; 0: nothing."""
        found = self._connection.execute("SELECT value FROM _tidemill_state WHERE name = 'progress'").fetchone()
        return Progress.from_json(found[0]).flushed_ts if found else 0

    def known(self) -> dict[tuple[str, str], Known]:
        """Return the tables, by their names in lower case."""
        found = {}
        for table in self._catalog:
            rows = self._connection.execute(f"SELECT COUNT(*) FROM {quoted(table.stored)}").fetchone()[0]
            columns = frozenset(folded(column.name) for column in table.value_columns)
            found[folded_table(table.name)] = Known(table.name, columns, rows)
        return found

    def divided(self, table: DiffTable, rows: int, chunk: int) -> DiffTable:
        """Return the table with buckets of about `chunk` rows."""
        return replace(table, buckets=Hashed(max(1, min(rows // chunk, MOST_BUCKETS))))

    def sums(self, table: DiffTable, buckets: Sequence[int] | None) -> Sums:
        """Return the sums of all buckets."""
        return added(sums_of(table, rows) for rows in self._all(table))

    def rows(self, table: DiffTable, buckets: Iterable[int]) -> Iterator[list[Row]]:
        """Yield the rows of buckets, some at a time."""
        wanted = set(buckets)
        for rows in self._all(table):
            yield [row for row in rows if table.buckets.count == 1 or table.buckets.of(row[0]) in wanted]

    def _all(self, table: DiffTable) -> Iterator[list[Row]]:
        stored = self._catalog.find((table.schema, table.table))
        assert stored is not None, "it was among the known ones"
        known = {folded(column.name): column for column in stored.value_columns}
        asked = (*table.sql.key, *table.sql.columns)
        columns = [known[folded(column.name)] for column in asked]
        listed = ", ".join(quoted(column.name) for column in columns) or "1"
        found = self._connection.execute(f"SELECT {listed} FROM {quoted(stored.stored)}")
        keys = len(table.sql.key)
        while some := list(islice(found, _FETCH)):
            texts = [[self._text(c, k, value) for c, k, value in zip(asked, columns, row, strict=False)] for row in some]
            yield [(key_of(table, cells[:keys]), b",".join(cells[keys:])) for cells in texts]

    def _text(self, column: ColumnInfo, known: ColumnInfo, value: Stored) -> bytes:
        if isinstance(value, str) and value.startswith(NAMED) and column.tp in (MySQLType.ENUM, MySQLType.SET):
            value = _number_of(column, value.removeprefix(NAMED))
        cell = from_stored(known, value)
        if cell is None:
            return NULL
        if column.tp == MySQLType.TIMESTAMP and self._zone is not UTC and isinstance(cell, str):
            cell = in_utc(cell, self._zone)
        return literal(column, cell)


def _number_of(column: ColumnInfo, text: str) -> int:
    """Return the index of an ENUM's element, or the mask of a SET's, which CSV files have by name. -1: there is no such element."""
    numbers = {element: number for number, element in enumerate(column.elems)}
    try:
        if column.tp == MySQLType.ENUM:
            return numbers[text] + 1 if text in numbers or text else 0
        return sum(1 << numbers[one] for one in text.split(",")) if text else 0
    except KeyError:
        return -1


def read_files(uri: SinkUri, file: Path, zone: tzinfo, target_ts: int | None) -> None:
    """Read the files of a storage sink, up to `target_ts` or their checkpoint, into a file. Raises ConfigError, SinkError, SinkUnavailable,
    MalformedMessage."""
    stored = StoredTables(uri)
    upto = stored.checkpoint_ts if target_ts is None else target_ts
    tables = SqliteTables(file, zone=zone)
    try:
        apply(tables, stored, upto)
        tables.commit(Progress(flushed_ts=upto))
    finally:
        tables.close()


def read_topics(upstream: Upstream, file: Path, zone: tzinfo, target_ts: int | None, fetch: Callable[[str], bytes] | None) -> None:
    """Read what the topics hold now, up to `target_ts`, into a file. Raises TopicError, TopicUnavailable, MalformedMessage."""
    topics = KafkaTopics(upstream)
    try:
        topics.require()
        tables = SqliteTables(file, zone=zone)
        try:
            options = Options(stop_at_end=True, target_ts=target_ts, retry_s=60.0)
            Consumer(topics, tables, reader(upstream.protocol, fetch), options).run(threading.Event())
        finally:
            tables.close()
    finally:
        topics.close()
