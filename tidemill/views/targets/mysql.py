"""`mysql://`, `tidb://`: the view is the table views.<name> of a database, and views._tidemill says at which resolved ts it is.

An interval is one transaction over both tables. A view whose key has text gets a column _row_key as its primary key, the hash of its key:
MySQL compares text in other ways than Spark.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from tidemill.config.database import MysqlOptions
from tidemill.errors import SinkError
from tidemill.protocols.sql.hints import Program
from tidemill.sinks.mysql.connection import Connection, ServerFault
from tidemill.tidb.names import quote_name
from tidemill.views import types as t
from tidemill.views.shape import ROW_KEY, Shape
from tidemill.views.targets.base import split

DATABASE = "views"
BOOKS = f"`{DATABASE}`.`_tidemill`"
_ROWS = 500
"""Rows of a statement."""
_KEY = "VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin"
_TYPES = {
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    t.INT: "INT",
    t.LONG: "BIGINT",
    pa.float32(): "FLOAT",
    t.DOUBLE: "DOUBLE",
    t.BOOLEAN: "TINYINT(1)",
    t.STRING: "LONGTEXT",
    pa.binary(): "LONGBLOB",
    t.DATE: "DATE",
    t.DATETIME: "DATETIME(6)",
    t.MOMENT: "DATETIME(6)",
}

Row = tuple[Any, ...]


class MysqlTarget:
    """See `Target`. Not safe for threads."""

    def __init__(self, options: MysqlOptions, name: str, feed: str, shape: Shape) -> None:
        self._options, self._name, self._feed, self._shape = options, name, feed, shape
        self._table = f"`{DATABASE}`.{quote_name(name)}"
        kinds = {one.name: one.type for one in shape.schema}
        self._hashes = any(kinds[key] in (t.STRING, pa.binary()) for key in shape.keys) and shape.keys != (ROW_KEY,)
        self._keys = (ROW_KEY,) if self._hashes else shape.keys
        self._names = [*((ROW_KEY,) if self._hashes else ()), *shape.schema.names]
        self._open: Connection | None = None

    @contextmanager
    def _session(self) -> Iterator[Connection]:
        """A connection; a new one after a fault."""
        try:
            if self._open is None:
                self._open = Connection(self._options)
            yield self._open
        except ServerFault as fault:
            self.close()
            raise fault.error(f"{self._options.host}:{self._options.port}", Program.VIEW) from None

    def create(self) -> None:
        with self._session() as session:
            session.run(f"CREATE DATABASE IF NOT EXISTS `{DATABASE}`")
            session.run(
                f"CREATE TABLE IF NOT EXISTS {BOOKS} (name VARCHAR(64) CHARACTER SET ascii PRIMARY KEY, feed VARCHAR(255) NOT NULL, "
                "resolved_ts BIGINT UNSIGNED NOT NULL)"
            )
            session.run(f"INSERT IGNORE INTO {BOOKS} VALUES (%s, %s, 0)", self._name, self._feed)
            session.commit()
            self._resolved(session)
            session.run(f"CREATE TABLE IF NOT EXISTS {self._table} ({', '.join(self._columns())})")

    def _columns(self) -> Iterator[str]:
        if self._hashes:
            yield f"{ROW_KEY} {_KEY} NOT NULL"
        for one in self._shape.schema:
            kind = (
                _KEY
                if one.name == ROW_KEY
                else f"DECIMAL({one.type.precision},{one.type.scale})"
                if t.is_decimal(one.type)
                else _TYPES.get(one.type)
            )
            if kind is None:
                raise SinkError(f"column {one.name} is {t.spark_type(one.type)}, which a table of MySQL cannot have")
            if t.is_decimal(one.type) and one.type.scale > 30:
                raise SinkError(
                    f"column {one.name} has {one.type.scale} digits behind the point; MySQL has 30", hint="Use CAST in the query."
                )
            text = " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" if kind == "LONGTEXT" else ""
            yield f"{quote_name(one.name)} {kind}{text}{' NOT NULL' if one.name in self._keys else ''}"
        yield f"PRIMARY KEY ({', '.join(map(quote_name, self._keys))})"

    def _resolved(self, session: Connection) -> int:
        """The ts of what is there. Its row is locked until the transaction ends."""
        found = session.rows(f"SELECT feed, resolved_ts FROM {BOOKS} WHERE name = %s FOR UPDATE", self._name)
        if not found:
            raise SinkError(f"{BOOKS} does not know {self._name} any more", hint="Drop the view and create it again.")
        ((feed, ts),) = found
        if feed != self._feed:
            session.rollback()
            raise SinkError(f"{self._table} belongs to {feed}, another view", hint="Drop that view, or give this one another name.")
        return int(ts)

    def delivered(self) -> int:
        self.create()
        with self._session() as session:
            found = self._resolved(session)
            session.rollback()
            return found

    def deliver(self, changes: pa.Table, to_ts: int) -> None:
        comes, _, goes = split(changes, self._shape)
        with self._session() as session:
            try:
                if self._resolved(session) < to_ts:
                    self._write(session, comes, goes)
                    session.run(f"UPDATE {BOOKS} SET resolved_ts = %s WHERE name = %s", to_ts, self._name)
                session.commit()
            except ServerFault:
                self.close()  # the server undoes what is not committed
                raise

    def _write(self, session: Connection, comes: pa.Table, goes: pa.Table) -> None:
        keys = ", ".join(map(_in_statement, self._keys))
        for rows in _pieces(self._rows(goes, self._keys)):
            marks = ", ".join(["(" + ", ".join(["%s"] * len(self._keys)) + ")"] * len(rows))
            session.run(f"DELETE FROM {self._table} WHERE ({keys}) IN ({marks})", *(value for row in rows for value in row))
        names = ", ".join(map(_in_statement, self._names))
        for rows in _pieces(self._rows(comes, self._names)):
            marks = ", ".join(["(" + ", ".join(["%s"] * len(self._names)) + ")"] * len(rows))
            session.run(f"REPLACE INTO {self._table} ({names}) VALUES {marks}", *(value for row in rows for value in row))

    def _rows(self, found: pa.Table, names: Sequence[str]) -> list[Row]:
        columns = {name: found[name].to_pylist() for name in self._shape.schema.names}
        self._refuse_no_numbers(columns)
        for name in (one.name for one in self._shape.schema if one.type == t.MOMENT):
            columns[name] = [value and value.replace(tzinfo=None) for value in columns[name]]
        if self._hashes:
            keys = zip(*(columns[key] for key in self._shape.keys), strict=True)
            columns[ROW_KEY] = [hashlib.md5(repr(key).encode(), usedforsecurity=False).hexdigest() for key in keys]
        return list(zip(*(columns[name] for name in names), strict=True))

    def _refuse_no_numbers(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Raises SinkError naming a row with NaN or an infinity, which a database cannot keep."""
        for one in self._shape.schema:
            if not pa.types.is_floating(one.type):
                continue
            for row, value in enumerate(columns[one.name]):
                if value is not None and not math.isfinite(value):
                    key = ", ".join(f"{name}={columns[name][row]!r}" for name in self._shape.keys if name in columns)
                    raise SinkError(
                        f"{DATABASE}.{self._name}: column {one.name} of the row with key {key} is {value}, which a database cannot keep",
                        hint="Let the query return NULL or another number there, with CASE or NULLIF.",
                    )

    def resolved(self, ts: int) -> None:
        with self._session() as session:
            session.run(
                f"UPDATE {BOOKS} SET resolved_ts = %s WHERE name = %s AND feed = %s AND resolved_ts < %s", ts, self._name, self._feed, ts
            )
            session.commit()

    def drop(self) -> None:
        with self._session() as session:
            self._resolved(session)
            session.run(f"DROP TABLE IF EXISTS {self._table}")
            session.run(f"DELETE FROM {BOOKS} WHERE name = %s", self._name)
            session.commit()

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


def _in_statement(name: str) -> str:
    """A name in a statement with values, where a % is written twice."""
    return quote_name(name).replace("%", "%%")


def _pieces(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for at in range(0, len(rows), _ROWS):
        yield rows[at : at + _ROWS]
