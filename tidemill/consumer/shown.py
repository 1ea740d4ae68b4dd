"""Events as lines for people. Pure.

    2026-11-23 03:50:01.123  shop.orders  update  id=7  price: 1.50 → 1.60  note: NULL → 'sold'

Key columns come first. Of an update only the columns that changed are shown.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill import tso
from tidemill.protocols.open.codes import ColumnFlag, ColumnType
from tidemill.protocols.open.events import Column, DdlMessage, Event, ResolvedMessage, RowEvent, RowKind

LONGEST = 80
"""Characters of a value that are shown, unless somebody wants it whole."""
_PLAIN = (
    ColumnType.DECIMAL,
    ColumnType.DATE,
    ColumnType.DATETIME,
    ColumnType.TIMESTAMP,
    ColumnType.TIME,
    ColumnType.JSON,
    ColumnType.VECTOR,
)


@dataclass(frozen=True, slots=True)
class Shown:
    """An event for people. `what`: insert, update, delete, DDL or resolved. `table` is empty for an event that has none."""

    at: str
    table: str
    what: str
    text: str

    def __str__(self) -> str:
        return "  ".join(part for part in (self.at, self.table, self.what, self.text) if part)


def shown(event: Event, longest: int | None = LONGEST) -> Shown:
    """Return an event for people. `longest`: characters of a value (None: all)."""
    at = _time(event.ts)
    match event:
        case RowEvent():
            return Shown(at, f"{event.schema}.{event.table}", event.kind.value, "  ".join(_columns(event, longest)))
        case DdlMessage():
            return Shown(at, ".".join(name for name in (event.schema, event.table) if name), "DDL", _one_line(event.query))
        case ResolvedMessage():
            return Shown(at, "", "resolved", str(event.ts))


def value_text(column: Column, longest: int | None = LONGEST) -> str:
    """Return a value as SQL would nearly write it: NULL, 1.5, 'text', 0xff."""
    value = column.value
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return _bytes_text(value, column.flags, longest)
    if isinstance(value, str) and column.type not in _PLAIN:
        return _quoted(value, longest)
    return _cut(str(value), longest)


def _columns(event: RowEvent, longest: int | None) -> list[str]:
    image = event.after or event.before
    before = {column.name: column for column in event.before}
    keys = [f"{column.name}={value_text(column, longest)}" for column in image if column.handle]
    others = [column for column in image if not column.handle]
    if event.claim_check is not None:
        return [*keys, f"(the row is in {event.claim_check})"]
    if event.kind is not RowKind.UPDATE:
        return [*keys, *(f"{column.name}={value_text(column, longest)}" for column in others)]
    moved = [
        f"(was {column.name}={value_text(before[column.name], longest)})"
        for column in image
        if column.handle and column.name in before and before[column.name].value != column.value
    ]
    return [*keys, *moved, *(_change(before.get(column.name), column, longest) for column in others if _differs(before, column))]


def _differs(before: dict[str, Column], column: Column) -> bool:
    return column.name not in before or before[column.name].value != column.value


def _change(old: Column | None, new: Column, longest: int | None) -> str:
    if old is None:
        return f"{new.name}={value_text(new, longest)}"
    return f"{new.name}: {value_text(old, longest)} → {value_text(new, longest)}"


def _bytes_text(value: bytes, flags: ColumnFlag, longest: int | None) -> str:
    if not flags & ColumnFlag.BINARY or not value:
        try:
            return _quoted(value.decode(), longest)
        except UnicodeDecodeError:
            pass
    return f"0x{_cut(value.hex(), longest)}"


def _quoted(text: str, longest: int | None) -> str:
    return f"'{_cut(_one_line(text), longest)}'"


def _one_line(text: str) -> str:
    """A text without characters that a terminal would act upon."""
    return "".join(c if c.isprintable() else " " if c.isspace() else f"\\x{ord(c):02x}" for c in text)


def _cut(text: str, longest: int | None) -> str:
    return text if longest is None or len(text) <= longest else f"{text[:longest]}… ({len(text)} characters)"


def _time(ts: int) -> str:
    try:
        return f"{tso.when(ts):%Y-%m-%d %H:%M:%S}.{tso.physical_ms(ts) % 1000:03d}"
    except OverflowError:
        return str(ts)
