"""The form of tables and values in SQLite."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemill.consumer.tables.buffer import Stored, stored
from tidemill.consumer.tables.catalog import declared
from tidemill.consumer.tables.statements import Name
from tidemill.protocols.open.events import Column
from tidemill.tidb.rows.cells import Cell, Family, family
from tidemill.tidb.schema.model import ColumnInfo

Signature = tuple[tuple[str, int, int, bool], ...]
"""The columns of a row event: name, type, flags, whether they belong to the key."""

_ROW_IDS = ("rowid", "_rowid_", "oid")
"""SQLite's names of a row's id."""


def quoted(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def stored_name(name: Name) -> str:
    """Return `schema.table`; a dot in the schema is doubled. SQLite keeps names that begin with `sqlite_` for itself."""
    text = f"{name[0].replace('.', '..')}.{name[1]}"
    return "_" + text if text.lower().startswith("sqlite_") else text


def row_id(columns: Iterable[ColumnInfo]) -> str:
    """Return the name of SQLite's row id for a table with these columns. A column of the same name would hide it.

    If columns have all of SQLite's names for it, the table has an extra column for it, see `create_sql`.
    """
    taken = {c.name.lower() for c in columns}
    free = (name for name in _ROW_IDS if name not in taken)
    return quoted(next(free, "") or _own_row_id(taken))


def _own_row_id(taken: set[str]) -> str:
    name = "_tidemill_rowid"
    while name in taken:
        name += "_"
    return name


def create_sql(stored_as: str, columns: Sequence[ColumnInfo]) -> str:
    """Return CREATE TABLE. SQLite has no tables without columns, so such a table gets an unused one."""
    parts = [f"{quoted(c.name)} {declared(c)}".rstrip() for c in columns] or ["_tidemill_none"]
    taken = {c.name.lower() for c in columns}
    if taken.issuperset(_ROW_IDS):
        parts.append(f"{quoted(_own_row_id(taken))} INTEGER PRIMARY KEY")
    return f"CREATE TABLE {quoted(stored_as)} ({', '.join(parts)})"


def to_stored(column: ColumnInfo, value: Cell) -> Stored:
    """Return a cell as it is stored."""
    return stored(value, binary=column.is_binary)


def from_stored(column: ColumnInfo, value: Stored) -> Cell:
    """Return the cell of a stored value."""
    match family(column):
        case Family.BYTES:
            return value.encode() if isinstance(value, str) else value
        case Family.INT | Family.NUMBER:
            return int(value) if isinstance(value, str) else value
    return value


def signature(columns: Iterable[Column]) -> Signature:
    """Return the signature of columns, which decides whether a row fits its table."""
    return tuple((c.name, int(c.type), int(c.flags), c.handle) for c in columns)
