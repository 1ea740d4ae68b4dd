"""The tables downstream as the database tells them: columns and unique keys."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tidemill.binlog.outputs.named import KnownColumn, KnownKey, KnownTable
from tidemill.protocols.sql.predicates import VALUES_BITS, Compared, Form, as_set
from tidemill.sinks.mysql.connection import Connection

_COLUMNS = """SELECT column_name, extra, is_nullable, data_type, collation_name, column_type FROM information_schema.columns
WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"""
_KEYS = """SELECT index_name, column_name, sub_part FROM information_schema.statistics
WHERE table_schema = %s AND table_name = %s AND non_unique = 0 ORDER BY index_name, seq_in_index"""

_INEXACT = frozenset({"float", "double", "json"})
"""Two values may be equal whose texts are not."""
_TEXTS = {
    **dict.fromkeys(("char", "varchar"), Compared(Form.AS_TEXT)),
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), Compared(Form.AS_LONG_TEXT)),
    "json": Compared(Form.AS_DOCUMENT),
}
_ELEMENT = re.compile(r"'(?:[^']|'')*'")


class Tables:
    """Asks once for each table, until told to forget. `connection`: gives an open one. All methods raise ServerFault."""

    def __init__(self, connection: Callable[[], Connection]) -> None:
        self._connection = connection
        self._known: dict[tuple[str, str], KnownTable | None] = {}

    def forget(self) -> None:
        """A DDL was run."""
        self._known.clear()

    def find(self, schema: str, table: str) -> KnownTable | None:
        """Return a table; None: it is not there."""
        name = schema, table
        if name not in self._known:
            connection = self._connection()
            columns = [_column(*row) for row in connection.rows(_COLUMNS, *name)]
            self._known[name] = KnownTable(schema, table, tuple(columns), _keys(connection.rows(_KEYS, *name))) if columns else None
            connection.commit()
        return self._known[name]


def _column(name: Any, extra: Any, nullable: Any, data_type: Any, collation: Any, column_type: Any) -> KnownColumn:
    kind = str(data_type).lower()
    exact = kind not in _INEXACT and (collation is None or kind in ("enum", "set"))
    return KnownColumn(
        str(name), "GENERATED" in str(extra).upper() and "DEFAULT_GENERATED" not in str(extra).upper(), str(nullable).upper() == "YES",
        exact, _compared(kind, str(column_type)), kind == "bit" and int(str(column_type)[4:-1]) > VALUES_BITS,
    )  # fmt: skip


def _compared(kind: str, column_type: str) -> Compared:
    return as_set(_ELEMENT.findall(column_type)) if kind == "set" else _TEXTS.get(kind, Compared())


def _keys(rows: list[tuple[Any, ...]]) -> tuple[KnownKey, ...]:
    """Return the unique keys, the primary key first."""
    found: dict[str, list[tuple[Any, Any]]] = {}
    for key, column, part in rows:
        found.setdefault(str(key), []).append((column, part))
    names = sorted(found, key=lambda name: (name != "PRIMARY", name))
    return tuple(
        KnownKey(name, tuple(str(column) for column, _ in found[name]), all(part is None for _, part in found[name]))
        for name in names
        if all(column is not None for column, _ in found[name])
    )
