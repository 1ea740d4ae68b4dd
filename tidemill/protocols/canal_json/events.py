"""The content of Canal-JSON messages, as frozen objects."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.protocols.common.mysqlvalues import Value
from tidemill.protocols.open.events import RowKind

__all__ = ["Column", "DdlMessage", "Event", "RowEvent", "RowKind", "Value", "WatermarkMessage"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of one image. `mysql_type` and `sql_type` are as in the message. `key`: it belongs to the primary key."""

    name: str
    mysql_type: str
    sql_type: int | None
    key: bool
    value: Value


@dataclass(frozen=True, slots=True)
class RowEvent:
    """A change of a row. Only messages with the TiDB extension have `commit_ts`; all have `es`, its milliseconds.

    `before` has the columns of `old`: all, or only those that changed (only-output-updated-columns, content-compatible, Canal itself).
    A deleted row is in `before`.
    """

    es: int
    commit_ts: int | None
    schema: str
    table: str
    kind: RowKind
    after: tuple[Column, ...]
    before: tuple[Column, ...]
    only_handle_key: bool  # the other columns were left out because the message would have been too large
    claim_check: str | None  # where the whole message is kept instead

    @property
    def whole_before(self) -> tuple[Column, ...]:
        """Return all columns of the row before an update. Unchanged ones are taken from `after`."""
        if self.kind is not RowKind.UPDATE:
            return self.before
        old = {column.name: column for column in self.before}
        return tuple(old.get(column.name, column) for column in self.after)


@dataclass(frozen=True, slots=True)
class DdlMessage:
    """A DDL; `table` is empty for a DDL of a schema. `type` is CREATE, ALTER, ERASE, QUERY and so on."""

    es: int
    commit_ts: int | None
    schema: str
    table: str
    query: str
    type: str


@dataclass(frozen=True, slots=True)
class WatermarkMessage:
    """Nothing at or below `ts` will follow in this partition."""

    ts: int


Event = RowEvent | DdlMessage | WatermarkMessage
