"""The tables with their rows at a timestamp, read from meta keys and rows alone. Deliveries are compared with them.

It works on any source of key-values at one ts: the playground's own store, or a cluster through PD and KvScan.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Protocol

from tidemill.errors import SqlError
from tidemill.playground.store.mvcc import KeyLocked, Mvcc
from tidemill.tidb import keys
from tidemill.tidb.rows import RowReader
from tidemill.tidb.rows.cells import Cell
from tidemill.tidb.schema.codes import SchemaState
from tidemill.tidb.schema.model import ColumnInfo, DBInfo, TableInfo
from tidemill.tidb.types.jsonstyle import JsonStyle

Name = tuple[str, str]
Row = dict[str, Cell]
JsonValue = None | int | float | str | dict[str, str]


@dataclass(frozen=True, slots=True)
class TruthTable:
    """A table at one ts: its definition and its rows by column name, in key order."""

    info: TableInfo
    rows: list[Row]


class Pairs(Protocol):
    """Key-values of a cluster at one ts."""

    def scan(self, start: bytes, end: bytes) -> AsyncIterator[tuple[bytes, bytes]]:
        """The pairs of a raw range, in key order."""
        ...


class StorePairs:
    """The playground's own store at a ts."""

    def __init__(self, mvcc: Mvcc, ts: int) -> None:
        self._mvcc, self._ts = mvcc, ts

    def pairs(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The pairs of a raw range, in key order. Raises KeyLocked."""
        for key, value in self._mvcc.scan(start, end, self._ts):
            if isinstance(value, KeyLocked):
                raise value
            yield key, value


def tables_at(mvcc: Mvcc, ts: int, zone: tzinfo = UTC, style: JsonStyle = JsonStyle.GO) -> dict[Name, TruthTable]:
    """All tables of users at a ts: by (schema, table). Timestamps are shown in `zone`, documents in `style`.

    Raises KeyLocked when a transaction in between holds a key.
    """
    store = StorePairs(mvcc, ts)
    described = describe_tables(store.pairs(*META_RANGE))
    return {name: TruthTable(info, list(read_rows(info, lambda a, b: store.pairs(a, b), zone, style))) for name, info in described.items()}


META_RANGE = (b"mDB", b"mDC")
"""`DBs` and all `DB:n`."""


def describe_tables(pairs: Iterable[tuple[bytes, bytes]]) -> dict[Name, TableInfo]:
    """Return the public tables of users among meta key-values: no views, no sequences, no system tables."""
    databases: dict[int, str] = {}
    found: list[tuple[int, TableInfo]] = []
    for key, value in pairs:
        meta = keys.parse_meta_key(key)
        if meta.kind is not keys.MetaKind.HASH_FIELD:
            continue
        if meta.name == keys.DBS:
            database = DBInfo.from_json(json.loads(value))
            databases[database.id] = database.name
        else:
            schema_id, table_id = keys.schema_id_of(meta.name), keys.table_id_of(meta.field)
            if schema_id is not None and table_id is not None:
                found.append((schema_id, TableInfo.from_json(json.loads(value))))
    tables = {}
    for schema_id, info in found:
        schema = databases.get(schema_id, "")
        if schema and not keys.is_system_schema(schema) and info.state == SchemaState.PUBLIC and not info.is_view and not info.is_sequence:
            tables[schema, info.name] = info
    return dict(sorted(tables.items()))


def read_rows(info: TableInfo, scan: Scan, zone: tzinfo, style: JsonStyle) -> Iterator[Row]:
    """The rows of a table, in the order of their keys, partition by partition."""
    reader = RowReader(info, zone, json=style)
    names = [c.name for c in info.output_columns]
    for physical in info.physical_ids:
        for key, value in scan(*keys.record_range(physical)):
            yield dict(zip(names, reader.read(key, value), strict=True))


class Scan(Protocol):
    """How rows are fetched."""

    def __call__(self, start: bytes, end: bytes, /) -> Iterable[tuple[bytes, bytes]]: ...


async def describe_remote(pairs: Pairs) -> dict[Name, TableInfo]:
    """As describe_tables, through a snapshot of a running cluster."""
    return describe_tables([pair async for pair in pairs.scan(*META_RANGE)])


async def read_remote(pairs: Pairs, info: TableInfo, zone: tzinfo, style: JsonStyle) -> AsyncIterator[Row]:
    """As read_rows, through a snapshot of a running cluster that prints documents in a style."""
    reader = RowReader(info, zone, json=style)
    names = [c.name for c in info.output_columns]
    for physical in info.physical_ids:
        async for key, value in pairs.scan(*keys.record_range(physical)):
            yield dict(zip(names, reader.read(key, value), strict=True))


def find_table(tables: Mapping[Name, TableInfo], text: str) -> TableInfo:
    """A table by `schema.table`; case does not matter. Raises SqlError."""
    schema, _, table = text.partition(".")
    for (known_schema, known_table), info in tables.items():
        if (known_schema.lower(), known_table.lower()) == (schema.lower(), table.lower()):
            return info
    raise SqlError(f"there is no table {text}", hint="Tables: " + (", ".join(".".join(n) for n in tables) or "none"))


def json_row(info: TableInfo, row: Row) -> dict[str, JsonValue]:
    """A row for JSON output: numbers and text as they are, text columns as strings, binary columns as {"base64": …}."""
    columns = {c.name: c for c in info.output_columns}
    return {name: json_value(columns[name], value) for name, value in row.items()}


def json_value(column: ColumnInfo, value: Cell) -> JsonValue:
    """One cell for JSON output. Text that is not UTF-8 is given as {"base64": …} too."""
    if not isinstance(value, bytes):
        return value
    if not column.is_binary:
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    return {"base64": base64.b64encode(value).decode()}
