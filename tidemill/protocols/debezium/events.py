"""The content of Debezium's messages, as frozen objects."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.protocols.open.events import RowKind

__all__ = ["Column", "DdlMessage", "Event", "RowEvent", "RowKind", "TableChange", "Value", "Watermark"]

Value = None | bool | int | float | str | bytes
"""Without a schema block as in the message. With one, dates and times are text, BIT is an int, base64 of known binary types bytes."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of one image. `type`: Kafka Connect's, `meaning`: its name for Debezium; both are empty without a schema block.

    `tidb_type` is there with the TiDB extension. `key`: the message's key has the column.
    """

    name: str
    type: str
    meaning: str
    tidb_type: str
    key: bool
    value: Value


@dataclass(frozen=True, slots=True)
class RowEvent:
    """A change of a row. `before` is empty for an insert, and for an update without old values; `after` for a delete."""

    commit_ts: int
    start_ts: int | None
    cluster: str
    schema: str
    table: str
    kind: RowKind
    after: tuple[Column, ...]
    before: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class TableChange:
    """What a DDL did to a table: `type` is CREATE, ALTER or DROP, `columns` are the names of those that it leaves."""

    type: str
    id: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DdlMessage:
    """A DDL. `table` is empty for a DDL of a schema."""

    commit_ts: int
    cluster: str
    schema: str
    table: str
    query: str
    changes: tuple[TableChange, ...]


@dataclass(frozen=True, slots=True)
class Watermark:
    """Nothing at or below `ts` will follow in this partition."""

    ts: int


Event = RowEvent | DdlMessage | Watermark
