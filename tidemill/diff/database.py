"""A MySQL, MariaDB or TiDB downstream: its tables, and the sums and rows of their buckets."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from tidemill.config.uri import parse_sink_uri
from tidemill.diff.digest import NOTHING, Row, Sum, Sums
from tidemill.diff.expressions import rows_query, sums_query
from tidemill.diff.model import MOST_BUCKETS, DiffTable, Hashed, Ranges
from tidemill.diff.rows import key_of
from tidemill.errors import SinkError
from tidemill.protocols.sql.literals import NULL, literal
from tidemill.sinks.mysql.bookkeeping import SCHEMA as BOOKS
from tidemill.sinks.mysql.connection import Connection, ServerFault, faults
from tidemill.sinks.mysql.known import FeedState, feeds
from tidemill.sinks.mysql.session import Server
from tidemill.tidb.keys import is_system_schema
from tidemill.tidb.names import folded, folded_table, quote_name
from tidemill.tidb.rows.cells import Family, family
from tidemill.tidb.schema.model import ColumnInfo

log = logging.getLogger(__name__)

_OWN = frozenset({"information_schema", "performance_schema", "mysql", "sys", "metrics_schema", BOOKS, "tidb_binlog"})
_FETCH = 4096


@dataclass(frozen=True, slots=True)
class Known:
    """A table downstream: its name there, its columns, and about how many rows it has."""

    name: tuple[str, str]
    columns: frozenset[str]
    rows: int


class Database:
    """A connection to the downstream. Raises SinkError, SinkUnavailable."""

    is_remote = True

    def __init__(self, uri: str, snapshot: str = "") -> None:
        """`snapshot`: of a TiDB, the ts there at which it is read."""
        self._options = parse_sink_uri(uri).database
        self.where = f"{self._options.host}:{self._options.port}"
        try:
            self._connection = Connection(self._options)
            self._connection.run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            if snapshot:
                self._connection.run("SET @@tidb_snapshot = %s", snapshot)
        except ServerFault as fault:
            raise fault.error(self.where) from fault

    @property
    def server(self) -> Server:
        """What it is."""
        return self._connection.server

    @property
    def is_tidb(self) -> bool:
        return self._connection.server.is_tidb

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            found = self._connection.rows(query, *values)
            self._connection.rollback()
        except ServerFault as fault:
            raise fault.error(self.where) from fault
        return found

    def known(self) -> dict[tuple[str, str], Known]:
        """Return the tables, by their names in lower case. Views are none."""
        listed = "SELECT table_schema, table_name, COALESCE(table_rows, 0) FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
        columns: dict[tuple[str, str], set[str]] = {}
        for schema, table, column in self._rows("SELECT table_schema, table_name, column_name FROM information_schema.columns"):
            columns.setdefault(folded_table((schema, table)), set()).add(folded(column))
        found = {}
        for schema, table, rows in self._rows(listed):
            name = folded_table((schema, table))
            if name[0] not in _OWN and not is_system_schema(schema):
                found[name] = Known((schema, table), frozenset(columns.get(name, ())), int(rows))
        return found

    def divided(self, table: DiffTable, rows: int, chunk: int) -> DiffTable:
        """Return the table with buckets of about `chunk` rows."""
        column = table.range_column
        if column is None:
            return replace(table, buckets=Hashed(max(1, min(rows // chunk, MOST_BUCKETS))))
        c = quote_name(column.name)
        step, after = max(chunk, rows // MOST_BUCKETS), ""
        bounds: list[int] = []
        while True:
            found = self._rows(f"SELECT {c} FROM {table.quoted}{after} ORDER BY {c} LIMIT 1 OFFSET {step}")
            if not found:
                return replace(table, buckets=Ranges(tuple(bounds)))
            bounds.append(int(found[0][0]))
            after = f" WHERE {c}>{bounds[-1]}"

    def sums(self, table: DiffTable, buckets: Sequence[int] | None) -> Sums:
        """Return the sums of buckets, by default of all of a table."""
        if isinstance(table.buckets, Ranges):
            asked = range(table.buckets.count) if buckets is None else buckets
            found = [row for bucket in asked for row in self._rows(sums_query(table, [bucket]))]
        else:
            found = self._rows(sums_query(table))
        sums = {(table.number, int(b)): Sum(int(count), int(xor or 0), int(total or 0)) for b, count, xor, total in found}
        return {place: value for place, value in sums.items() if value != NOTHING}

    def rows(self, table: DiffTable, buckets: Iterable[int]) -> Iterator[list[Row]]:
        """Yield the rows of buckets, some at a time."""
        query = rows_query(table, buckets)
        keys = len(table.sql.key)
        try:
            with faults(query), closing(self._connection.streamed(query)) as rows:
                while some := list(islice(rows, _FETCH)):
                    yield [_row(table, row, keys) for row in some]
            self._connection.rollback()
        except ServerFault as fault:
            raise fault.error(self.where) from fault

    def feeds(self) -> dict[str, FeedState]:
        """Return the changefeeds in the books, and how far they have written."""
        try:
            return feeds(self._connection)
        except ServerFault as fault:
            raise fault.error(self.where) from fault

    def sync_point(self) -> tuple[int, str]:
        """Return the last sync point: the upstream's ts, and the ts there at which a TiDB has the same state."""
        query = f"SELECT primary_ts, secondary_ts FROM {BOOKS}.syncpoint_v1 ORDER BY primary_ts + 0 DESC LIMIT 1"
        found = self._rows(query)
        if not found:
            raise SinkError(f"{self.where} has no sync point yet", hint="A changefeed with enable-sync-point writes them.")
        return int(found[0][0]), str(found[0][1])


def _literal(column: ColumnInfo, cell: Any) -> bytes:
    """Return a value's literal as the upstream's rows have it: a server may write the same DOUBLE in other digits, and keys are compared as
    texts."""
    text = cell if isinstance(cell, bytes) else str(cell).encode()
    return literal(column, float(text)) if family(column) is Family.FLOAT and text != NULL else text


def _row(table: DiffTable, row: Sequence[Any], keys: int) -> Row:
    columns = (*table.sql.key, *table.sql.columns)
    cells = [_literal(column, cell) for column, cell in zip(columns, row, strict=False)]
    return key_of(table, cells[:keys]), b",".join(cells[keys : keys + len(table.sql.columns)])
