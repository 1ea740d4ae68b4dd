"""The content of Open Protocol messages, as frozen objects."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tidemill.protocols.open.codes import ColumnFlag, ColumnType, DdlType

Value = None | int | float | str | bytes
"""A column's value: int for integers, YEAR, BIT, ENUM (index) and SET (mask); float for FLOAT and DOUBLE; bytes for all char, text,
binary and blob types (text as UTF-8); str for DECIMAL, dates, times, JSON and VECTOR; None for NULL. The same as `tidb.rows.Cell`."""


class RowKind(enum.Enum):
    """What happened to a row."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of one image. `handle`: it belongs to the handle key."""

    name: str
    type: ColumnType | int
    flags: ColumnFlag
    handle: bool
    value: Value


@dataclass(frozen=True, slots=True)
class RowEvent:
    """A change of a row, committed at `ts`. `before` is empty for an insert (and for an update without old values), `after` for a delete.

    An update with an empty `before` looks like an insert; its kind is INSERT.
    """

    ts: int
    schema: str
    table: str
    row_id: int | None  # the integer handle if it is not 0
    partition: int | None  # the physical table id, for partitioned tables
    kind: RowKind
    after: tuple[Column, ...]
    before: tuple[Column, ...]
    only_handle_key: bool  # the other columns were left out because the message would have been too large
    claim_check: str | None  # where the whole message is kept instead


@dataclass(frozen=True, slots=True)
class DdlMessage:
    """A DDL. `table` is empty for a DDL of a schema."""

    ts: int
    schema: str
    table: str
    query: str
    type: DdlType | int


@dataclass(frozen=True, slots=True)
class ResolvedMessage:
    """Nothing at or below `ts` will follow in this partition."""

    ts: int


Event = RowEvent | DdlMessage | ResolvedMessage
