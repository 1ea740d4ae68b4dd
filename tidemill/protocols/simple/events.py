"""The content of the simple protocol's messages, as frozen objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.protocols.common.mysqlvalues import Value
from tidemill.protocols.open.events import RowKind

__all__ = ["Bootstrap", "ColumnSchema", "DdlMessage", "Event", "IndexSchema", "RowEvent", "RowKind", "TableSchema", "Watermark"]


@dataclass(frozen=True, slots=True)
class ColumnSchema:
    """A column of a table. `default` is as the message has it."""

    name: str
    mysql_type: str
    charset: str
    nullable: bool
    default: Any
    length: int
    decimal: int
    elements: tuple[str, ...]
    unsigned: bool
    zerofill: bool


@dataclass(frozen=True, slots=True)
class IndexSchema:
    """An index of a table."""

    name: str
    unique: bool
    primary: bool
    nullable: bool
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table's description. Rows refer to it by schema, table and `version`."""

    schema: str
    table: str
    table_id: int
    version: int
    columns: tuple[ColumnSchema, ...]
    indexes: tuple[IndexSchema, ...]


@dataclass(frozen=True, slots=True)
class RowEvent:
    """A change of a row. Without the table's description values are text as in the message. `zone` is that of TIMESTAMPs, if it has any."""

    commit_ts: int
    schema: str
    table: str
    table_id: int  # physical
    schema_version: int
    kind: RowKind
    after: Mapping[str, Value]
    before: Mapping[str, Value]
    typed: bool
    zone: str | None
    only_handle_key: bool
    claim_check: str | None


@dataclass(frozen=True, slots=True)
class DdlMessage:
    """A DDL with the table after it and, if there was one, before it; neither for a DDL of a database."""

    commit_ts: int
    type: str
    query: str
    table: TableSchema | None
    table_before: TableSchema | None


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """A table's description, for consumers that begin in the middle."""

    table: TableSchema


@dataclass(frozen=True, slots=True)
class Watermark:
    """Nothing at or below `ts` will follow in this partition."""

    ts: int


Event = RowEvent | DdlMessage | Bootstrap | Watermark
