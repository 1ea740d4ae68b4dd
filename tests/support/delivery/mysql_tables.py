"""The tables of a database downstream, row by row against the upstream's."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any

from tests.support.servers.mariadb import MariaDb
from tests.support.servers.real_databases import RealDatabase
from tidemill.consumer.tables.sqlite import MEMORY, SqliteTables
from tidemill.demo.audit import Audit
from tidemill.demo.compare import Difference, Truth, Value, compare_table, plain, rows_of
from tidemill.tidb.rows.cells import Family, family
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo, TableInfo

EXACT_BITS = 53
"""TiDB reads the number of a SET as a DOUBLE, and fails where that is larger than a signed integer."""
_NUMBERS = frozenset({Family.INT, Family.NUMBER, Family.YEAR})
NO_TABLE = 1146


def _is_wide(column: ColumnInfo) -> bool:
    return column.tp == MySQLType.SET and len(column.elems) > EXACT_BITS


def _selected(column: ColumnInfo) -> str:
    name = f"`{column.name}`"
    match family(column):
        case Family.NUMBER if not _is_wide(column):
            return f"CAST({name}+0 AS UNSIGNED)"
        case Family.FLOAT:
            return f"{name}+0e0"
        case Family.BYTES:
            return name
    return f"CAST({name} AS CHAR)"


def _value(column: ColumnInfo, found: Any) -> Value:
    if found is None:
        return None
    if _is_wide(column):
        return sum(1 << column.elems.index(element) for element in plain(found).split(",") if element)
    match family(column):
        case Family.FLOAT:
            return float(found)
        case kind if kind in _NUMBERS:
            return int(found)
        case Family.BYTES:
            return plain(found)
    return found if isinstance(found, str) else bytes(found).decode()


def rows_in(db: MariaDb, info: TableInfo, name: tuple[str, str]) -> list[dict[str, Value]] | None:
    """The rows of a table downstream; None: it is not there."""
    with _session(db) as cursor:
        return _rows(cursor, info, name)


@contextlib.contextmanager
def _session(db: MariaDb) -> Iterator[Any]:
    with contextlib.closing(db.connect(conv={}, init_command="SET time_zone = '+00:00'")) as connection, connection.cursor() as cursor:
        yield cursor


def _rows(cursor: Any, info: TableInfo, name: tuple[str, str]) -> list[dict[str, Value]] | None:
    columns = info.output_columns
    listed = ", ".join(map(_selected, columns)) or "1"
    there = f"SELECT 1 FROM information_schema.tables WHERE table_schema = '{name[0]}' AND table_name = '{name[1]}'"
    if not cursor.execute(there):
        return None
    cursor.execute(f"SELECT {listed} FROM `{name[0]}`.`{name[1]}`")
    return [{c.name: _value(c, v) for c, v in zip(columns, row, strict=False)} for row in cursor.fetchall()]


def differences(db: MariaDb, truth: Truth) -> Iterator[Difference]:
    """Every difference between the tables downstream and the upstream's."""
    with _session(db) as cursor:
        for name, (info, rows) in sorted(truth.items()):
            found = _rows(cursor, info, name)
            if found is None:
                yield Difference(name, f"it is not there; upstream has {len(rows)} rows")
            elif isinstance(db, RealDatabase):
                yield from compare_table(name, info, _with_documents(info, rows), _with_documents(info, found))
            else:
                yield from compare_table(name, info, rows, found)


def _with_documents(info: TableInfo, rows: Sequence[Mapping[str, Value]]) -> list[dict[str, Value]]:
    """Have JSON documents in one spelling: MySQL and TiDB, unlike MariaDB, keep the document and not its text."""
    names = {column.name for column in info.columns if column.tp == MySQLType.JSON}
    return [{n: _document(v) if n in names and v is not None else v for n, v in row.items()} for row in rows]


def _document(value: Value) -> str:
    read = json.loads(str(value), parse_int=lambda text: int(text) if abs(int(text)) < 1 << 64 else float(text))
    return json.dumps(read, sort_keys=True)  # MySQL orders keys by their length, TiDB by their bytes


def truth_of(audit: Audit, infos: Mapping[tuple[str, str], TableInfo]) -> Truth:
    """The tables that delivered messages make, by the definitions of the upstream."""
    tables = SqliteTables(MEMORY, zone=UTC)
    audit.rebuild(tables)
    return {name: (info, rows_of(tables, name)) for name, info in infos.items() if info.has_usable_key and tables.catalog.find(name)}
