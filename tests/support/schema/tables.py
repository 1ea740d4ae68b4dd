"""Table descriptions for tests, as short as the test needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tidemill.tidb.schema.codes import ColumnFlag, MySQLType
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion

_STRING_TYPES = (MySQLType.VARCHAR, MySQLType.VAR_STRING, MySQLType.STRING, MySQLType.ENUM, MySQLType.SET)


def column(tp: MySQLType, **parts: Any) -> dict[str, Any]:
    """A column as TableInfo's JSON has it; `parts` are members of the column or, capitalised, of its type."""
    text = tp in _STRING_TYPES
    kind = {
        "Tp": int(tp),
        "Flag": 0,
        "Flen": -1,
        "Decimal": 0,
        "Charset": "utf8mb4" if text else "binary",
        "Collate": "utf8mb4_bin" if text else "binary",
    }
    own: dict[str, Any] = {"state": 5}
    for name, part in parts.items():
        (kind if name[0].isupper() else own)[name] = part
    return own | {"type": kind}


def table(columns: Sequence[dict[str, Any]], *, key: Sequence[int | tuple[int, int]] = (), pk_is_handle: bool = False) -> TableInfo:
    """A table of these columns, ids from 1 on. `key` are the offsets (with prefix lengths) of a clustered primary key;
    with `pk_is_handle` the first column is the integer primary key."""
    cols = [{"id": i + 1, "name": f"c{i + 1}", "offset": i} | c | {"type": dict(c["type"])} for i, c in enumerate(columns)]
    if pk_is_handle:
        cols[0]["type"]["Flag"] |= ColumnFlag.PRIMARY_KEY | ColumnFlag.NOT_NULL
    parts = [part if isinstance(part, tuple) else (part, -1) for part in key]
    primary = {
        "id": 1,
        "idx_name": "PRIMARY",
        "idx_cols": [{"name": cols[offset]["name"], "offset": offset, "length": length} for offset, length in parts],
        "is_unique": True,
        "is_primary": True,
        "state": 5,
    }
    return TableInfo.from_json(
        {
            "id": 100,
            "name": "t",
            "state": 5,
            "cols": cols,
            "index_info": [primary] if key else [],
            "pk_is_handle": pk_is_handle,
            "is_common_handle": bool(key),
            "common_handle_version": 1,
        }
    )


def table_version(schema: str, name: str, *, table_id: int = 100, from_ts: int = 0) -> TableVersion:
    """A table of one integer key column, in force from a ts on."""
    info = table([column(MySQLType.LONGLONG)], pk_is_handle=True)
    return TableVersion(schema, 1, replace(info, id=table_id, name=name), (table_id,), from_ts)


def ddl_event(version: TableVersion, ts: int, *, type_code: int = 17, query: str = "ALTER TABLE …") -> DdlEvent:
    """A DDL at ts that leaves the table as it is."""
    return DdlEvent(
        *(ts, ts, 1, 1, 0, type_code, version.schema, version.table, "", "", version.table_id, query, query, True, version, version)
    )
