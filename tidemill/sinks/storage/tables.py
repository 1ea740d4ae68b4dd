"""Schema files: TiCDC's description of a table or schema, and the checksum in the file's name.

    <schema>/<table>/meta/schema_<version>_<checksum>.json          <schema>/meta/schema_<version>_<checksum>.json

Layout, member names and types are those of files that TiCDC 9.0.0-beta.2 wrote (golden/tikv/ticdc_file_sink). The tests reproduce each of
them. The checksum is the CRC32 (IEEE), in 10 digits, of the description without TableVersion, Query and Type, with Version 0, and with the
columns sorted by name. Two versions of a table with the same columns have the same checksum.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidemill.protocols.common.gotext import json_string
from tidemill.tidb.schema.codes import Action, ColumnFlag, MySQLType
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion

_VERSION = 1  # of the format
_UNSPECIFIED = -1

_NAMES: dict[int, str] = {
    MySQLType.DECIMAL_OLD: "UNSPECIFIED", MySQLType.TINY: "TINYINT", MySQLType.SHORT: "SMALLINT", MySQLType.INT24: "MEDIUMINT",
    MySQLType.LONG: "INT", MySQLType.LONGLONG: "BIGINT", MySQLType.FLOAT: "FLOAT", MySQLType.DOUBLE: "DOUBLE",
    MySQLType.NEWDECIMAL: "DECIMAL", MySQLType.NULL: "NULL", MySQLType.TIMESTAMP: "TIMESTAMP", MySQLType.DATETIME: "DATETIME",
    MySQLType.DATE: "DATE", MySQLType.NEWDATE: "DATE", MySQLType.DURATION: "TIME", MySQLType.YEAR: "YEAR", MySQLType.BIT: "BIT",
    MySQLType.ENUM: "ENUM", MySQLType.SET: "SET", MySQLType.JSON: "JSON", MySQLType.VECTOR: "VECTOR", MySQLType.GEOMETRY: "GEOMETRY",
    MySQLType.VAR_STRING: "VAR_STRING",
}  # fmt: skip
_TEXT_AND_BINARY: dict[int, tuple[str, str]] = {
    MySQLType.STRING: ("CHAR", "BINARY"), MySQLType.VARCHAR: ("VARCHAR", "VARBINARY"), MySQLType.TINY_BLOB: ("TINYTEXT", "TINYBLOB"),
    MySQLType.BLOB: ("TEXT", "BLOB"), MySQLType.MEDIUM_BLOB: ("MEDIUMTEXT", "MEDIUMBLOB"), MySQLType.LONG_BLOB: ("LONGTEXT", "LONGBLOB"),
}  # fmt: skip
_LENGTHS: dict[int, int] = {
    MySQLType.BIT: 1, MySQLType.TINY: 4, MySQLType.SHORT: 6, MySQLType.INT24: 9, MySQLType.LONG: 11, MySQLType.LONGLONG: 20,
    MySQLType.FLOAT: 12, MySQLType.DOUBLE: 22, MySQLType.NEWDECIMAL: 10, MySQLType.YEAR: 4, MySQLType.STRING: 1, MySQLType.VARCHAR: 5,
    MySQLType.VAR_STRING: 255, MySQLType.TINY_BLOB: 255, MySQLType.BLOB: 65_535, MySQLType.MEDIUM_BLOB: 16_777_215,
    MySQLType.LONG_BLOB: 4_294_967_295,
}  # fmt: skip
"""Types with a precision, and MySQL's length for a column that states none."""
_FRACTIONS: dict[int, int] = {
    **dict.fromkeys([MySQLType.TIMESTAMP, MySQLType.DATETIME, MySQLType.DURATION], 0),
    **dict.fromkeys([MySQLType.FLOAT, MySQLType.DOUBLE], -1),
}
"""Types with decimals, and the default. Decimals are written as a scale if they are stated and not the default."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a schema file: its members in order, values as JSON text."""

    name: str
    members: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Definition:
    """The content of a schema file. `table` is empty for a schema's own DDL; `type` is TiDB's action code, 0 without a DDL."""

    schema: str
    table: str
    version: int
    columns: tuple[Column, ...]
    query: str = ""
    type: int = 0

    @property
    def checksum(self) -> int:
        """Checksum of names and columns."""
        members = [
            ("Table", _text(self.table)),
            ("Schema", _text(self.schema)),
            ("Version", "0"),
            ("TableColumns", _columns(sorted(self.columns, key=lambda column: column.name))),
            ("TableColumnsTotal", str(len(self.columns))),
        ]
        return zlib.crc32(_object(members, "").encode())

    @property
    def path(self) -> str:
        """The file's name below the sink's root."""
        return f"{meta_folder(self.schema, self.table)}/{file_name(self.version, self.checksum)}"

    def text(self) -> bytes:
        """Return the file's content."""
        members = [
            ("Table", _text(self.table)),
            ("Schema", _text(self.schema)),
            ("Version", str(_VERSION)),
            ("TableVersion", str(self.version)),
            ("Query", _text(self.query)),
            ("Type", str(self.type)),
            ("TableColumns", _columns(self.columns) if self.table else "null"),
            ("TableColumnsTotal", str(len(self.columns))),
        ]
        return _object(members, "").encode()


def meta_folder(schema: str, table: str) -> str:
    """Return the folder of the schema files of a table or schema."""
    return f"{schema}/{table}/meta" if table else f"{schema}/meta"


def file_name(version: int, checksum: int) -> str:
    """Return `schema_<version>_<checksum>.json`."""
    return f"schema_{version}_{checksum:010d}.json"


def of_table(version: TableVersion, *, column_ids: bool = False, query: str = "", type_code: int = 0, ts: int | None = None) -> Definition:
    """Return the schema file of a table as of its version, or as of the ts of the DDL that ends the version."""
    columns = _described(version.info, column_ids)
    return Definition(version.schema, version.info.name, version.from_ts if ts is None else ts, columns, query, type_code)


def of_ddl(event: DdlEvent, *, column_ids: bool = False) -> list[Definition]:
    """Return the schema files of a DDL: of its table after it, or before it for a drop. EXCHANGE PARTITION has two tables."""
    version = event.after or event.before
    if not event.table or version is None:
        return [Definition(event.schema, event.table, event.ts, (), event.query, event.type)]
    columns = _described(version.info, column_ids)
    found = [Definition(event.schema, event.table, event.ts, columns, event.query, event.type)]
    if event.type == Action.EXCHANGE_PARTITION and event.pre_table:
        found.insert(0, Definition(event.pre_schema, event.pre_table, event.ts, columns))
    return found


def _described(info: TableInfo, column_ids: bool) -> tuple[Column, ...]:
    return tuple(Column(column.name, tuple(_members(column, column_ids))) for column in info.public_columns)


def _members(column: ColumnInfo, column_ids: bool) -> Iterable[tuple[str, str]]:
    if column_ids:
        yield "ColumnId", _text(str(column.id))
    yield "ColumnName", _text(column.name)
    yield "ColumnType", _text(_type_name(column))
    default = column.default_bit.decode("utf-8", "replace") if column.default_bit is not None else column.default
    if default is None:
        default = column.origin_default
    if default is not None:
        yield "ColumnDefault", _text(default) if isinstance(default, str) else str(default)
    if column.tp in _LENGTHS:
        yield "ColumnPrecision", _text(str(_LENGTHS[column.tp] if column.flen == _UNSPECIFIED else column.flen))
    if (scale := _scale(column)) is not None:
        yield "ColumnScale", _text(str(scale))
    if column.not_null:
        yield "ColumnNullable", _text("false")
    if column.flag & ColumnFlag.PRIMARY_KEY:
        yield "ColumnIsPk", _text("true")


def _type_name(column: ColumnInfo) -> str:
    names = _TEXT_AND_BINARY.get(column.tp)
    name = names[column.is_binary] if names else _NAMES.get(column.tp, "UNSPECIFIED")
    return name + (" UNSIGNED" if column.unsigned else "")


def _scale(column: ColumnInfo) -> int | None:
    if column.tp == MySQLType.NEWDECIMAL:
        return max(column.decimal, 0)
    default = _FRACTIONS.get(column.tp)
    stated = default is not None and column.decimal not in (default, 0, _UNSPECIFIED)
    return column.decimal if stated else None


def _text(text: str) -> str:
    return json_string(text.encode("utf-8", "surrogatepass")).decode()


def _object(members: Iterable[tuple[str, str]], indent: str) -> str:
    inner = indent + "    "
    return "{\n" + ",\n".join(f'{inner}"{name}": {value}' for name, value in members) + f"\n{indent}}}"


def _columns(columns: Sequence[Column]) -> str:
    if not columns:
        return "[]"
    inner = " " * 8
    return "[\n" + ",\n".join(inner + _object(column.members, inner) for column in columns) + "\n    ]"
