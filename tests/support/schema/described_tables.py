"""The description of two tables, as a log's snapshot has it."""

from __future__ import annotations

import json

from tidemill.tidb.keys import db_key, table_key

DB = {"id": 2, "db_name": {"O": "d", "L": "d"}, "charset": "utf8mb4", "collate": "utf8mb4_bin", "state": 5}


def table(table_id: int) -> dict[str, object]:
    """A table of one column."""
    column_type = {"Tp": 8, "Flag": 4099, "Flen": 20, "Decimal": 0, "Charset": "binary", "Collate": "binary"}
    column = {"id": 1, "name": {"O": "id", "L": "id"}, "offset": 0, "state": 5, "type": column_type}
    name = {"O": f"t{table_id}", "L": f"t{table_id}"}
    return {
        "id": table_id,
        "name": name,
        "charset": "utf8mb4",
        "collate": "utf8mb4_bin",
        "cols": [column],
        "state": 5,
        "pk_is_handle": True,
    }


META = {db_key(2): json.dumps(DB).encode(), **{table_key(2, t): json.dumps(table(t)).encode() for t in (7, 8)}}
