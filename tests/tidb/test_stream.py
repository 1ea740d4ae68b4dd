"""End to end: every MVCC write of a TiDB session, read with SchemaHistory and RowReader, against what SELECT gave after each statement.

golden/tidb/stream.json.gz: 899 writes, 132 statements, 1014 states of tables, with DDLs of 31 kinds between.
"""

from __future__ import annotations

import functools
import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from tidemill.errors import MalformedKey
from tidemill.events import Op
from tidemill.tidb import keys
from tidemill.tidb.rows import Cell, RowReader
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.metakeys import META_TABLE_ID
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.tidb.schema.tracking.history import SchemaChange, SchemaHistory, TableVersion
from tidemill.tidb.types.floats import go_float_plain
from tidemill.tidb.types.members import enum_name, set_names

STREAM = Path(__file__).parents[1] / "golden" / "tidb" / "stream.json.gz"
TABLE_STATES = 1014


@functools.cache
def stream() -> dict[str, Any]:
    with gzip.open(STREAM) as file:
        loaded: dict[str, Any] = json.load(file)
    return loaded


def shown(column: ColumnInfo, value: Cell) -> str:
    """A cell as the oracle prints it."""
    match value:
        case None:
            return "<nil>"
        case bytes():
            return f"0x{value.hex()}" if column.is_binary else value.decode()
        case float():
            return go_float_plain(value, 32 if column.tp == MySQLType.FLOAT else 64)
        case int() if column.tp == MySQLType.ENUM:
            return enum_name(value, column.elems)
        case int() if column.tp == MySQLType.SET:
            return set_names(value, column.elems)
    return str(value)


def parts(key: bytes) -> tuple[int, bool]:
    """The table id of a raw key (0 of a meta key), and whether it is a row's."""
    if key.startswith(keys.META_PREFIX):
        return META_TABLE_ID, False
    return keys.physical_table_id(key), keys.is_record_key(key)


class Store:
    """Rows by physical table id, as of the last write taken in."""

    def __init__(self) -> None:
        self._rows: dict[int, dict[bytes, bytes]] = defaultdict(dict)

    def put(self, key: bytes, value: bytes | None) -> None:
        table_id, is_row = parts(key)
        if not is_row:
            return
        if value is None:
            self._rows[table_id].pop(key, None)
        else:
            self._rows[table_id][key] = value

    def select(self, version: TableVersion) -> list[list[str]]:
        """All rows of a table, each as text, sorted."""
        reader = RowReader(version.info, UTC)
        columns = version.info.output_columns
        rows = (reader.read(key, value) for physical_id in version.info.physical_ids for key, value in self._rows[physical_id].items())
        return sorted([shown(column, value) for column, value in zip(columns, row, strict=True)] for row in rows)


def expected(version: TableVersion, table: list[list[str]]) -> list[list[str]]:
    """The oracle's rows without virtual columns, which no feed has."""
    header = table[0]
    wanted = [header.index(column.name) for column in version.info.output_columns]
    virtual = [c.name for c in version.info.public_columns if c.is_virtual and not c.hidden]
    assert len(wanted) + len(virtual) == len(header)
    return sorted([row[i] for i in wanted] for row in table[1:])


def changes(job_table: int) -> Iterator[SchemaChange]:
    for write in stream()["writes"]:
        key = bytes.fromhex(write["k"])
        table_id, _ = parts(key)
        if table_id in (META_TABLE_ID, job_table):
            value = bytes.fromhex(write["v"]) if write["op"] == "Put" else None
            yield SchemaChange(table_id, Op.PUT if value is not None else Op.DELETE, write["start_ts"], write["commit_ts"], key, value)


def test_every_table_state_is_what_select_gave() -> None:
    recorded = stream()
    pairs = [(bytes.fromhex(pair["k"]), bytes.fromhex(pair["v"])) for pair in recorded["snapshot"]]
    history = SchemaHistory.bootstrap(recorded["start_ts"], [pair for pair in pairs if pair[0].startswith(keys.META_PREFIX)])
    store = Store()
    for key, value in pairs:
        store.put(key, value)
    last = recorded["steps"][-1]["ts_after"]
    history.advance(changes(history.job_table_ids[0]), last)

    writes = iter(sorted(recorded["writes"], key=lambda w: w["commit_ts"]))
    write = next(writes, None)
    compared = 0
    for step in recorded["steps"]:
        while write is not None and write["commit_ts"] <= step["ts_after"]:
            store.put(bytes.fromhex(write["k"]), bytes.fromhex(write["v"]) if write["op"] == "Put" else None)
            write = next(writes, None)
        names = {f"{v.schema}.{v.table}": v for v in history.snapshot(step["ts_after"]).tables.values()}
        for name, table in step["tables"].items():
            assert store.select(names[name]) == expected(names[name], table), f"{name} after {step['sql'][:200]}"
            compared += 1
    assert compared == TABLE_STATES


def test_keys_of_the_stream_are_read() -> None:
    for write in stream()["writes"]:
        key = bytes.fromhex(write["k"])
        if key.startswith(keys.META_PREFIX):
            assert bytes(keys.parse_meta_key(key)) == key
        elif keys.is_record_key(key):
            assert bytes(keys.parse_record_key(key)) == key
        else:
            with pytest.raises(MalformedKey):
                keys.parse_record_key(key)
            assert keys.parse_index_key(key).table_id == keys.physical_table_id(key)
