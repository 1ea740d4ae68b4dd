"""Row events of a table, merged to the last state of each key.

Readers of the file see only the state at a commit, so earlier states of a row need not be written. Within a transaction of the source all
old rows are removed before new ones are added, because rows may swap their keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tidemill.errors import MalformedMessage
from tidemill.protocols.open.codes import ColumnFlag, ColumnType
from tidemill.protocols.open.events import Column, RowEvent
from tidemill.tidb.names import folded

Stored = None | int | float | str | bytes
Row = dict[str, Stored]
"""Values by lower-case column names, as SQLite keeps them."""
Key = tuple[Stored, ...]

_MAX_INT = (1 << 63) - 1
_TEXT = frozenset(
    {
        ColumnType.VARCHAR, ColumnType.VAR_STRING, ColumnType.CHAR, ColumnType.TINYTEXT, ColumnType.MEDIUMTEXT, ColumnType.LONGTEXT,
        ColumnType.TEXT,
    }
)  # fmt: skip


def stored(value: Stored, *, binary: bool) -> Stored:
    """Return a cell as SQLite keeps it: text as text, numbers of more than 63 bits as text, the rest as it is."""
    if isinstance(value, bytes) and not binary:
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return str(value) if isinstance(value, int) and value > _MAX_INT else value


def image(columns: Iterable[Column]) -> Row:
    """Return the values of one image of a row."""
    return {folded(c.name): stored(c.value, binary=bool(c.flags & ColumnFlag.BINARY)) for c in columns}


@dataclass(slots=True)
class PendingRow:
    """The pending change of a key: whether its row is removed, and the new values."""

    remove: bool = False
    values: Row | None = None


@dataclass(slots=True)
class Buffer:
    """Changes of one table that are not written yet. `key` has the lower-case names of its key columns."""

    key: tuple[str, ...] = ()
    pending: dict[Key, PendingRow] = field(default_factory=dict)
    steps: list[tuple[Row | None, Row | None]] = field(default_factory=list)  # for a table without a key: (removed, added), in order
    cells: int = 0

    def __bool__(self) -> bool:
        return bool(self.pending or self.steps)

    def take(self, events: Sequence[RowEvent]) -> None:
        """Take all events of one transaction. Raises MalformedMessage for an event without a key column."""
        gone: list[Key] = []
        come: list[tuple[Key, Row]] = []
        for event in events:
            before, after = image(event.before), image(event.after)
            old = self._key(after | before, event) if before else None
            new = self._key(after, event) if after else None
            if old is not None and old != new:
                gone.append(old)
            if new is not None:
                come.append((new, after))
        for key in gone:
            self.pending[key] = PendingRow(remove=True)
        for key, values in come:
            change = self.pending.setdefault(key, PendingRow())
            change.values = values if change.values is None else change.values | values
            self.cells += len(values)

    def take_keyless(self, events: Sequence[RowEvent]) -> None:
        """Take all events of one transaction on a table without a key."""
        for event in events:
            before, after = image(event.before), image(event.after)
            self.steps.append((after | before if event.before else None, after if event.after else None))
            self.cells += len(before) + len(after)

    def _key(self, row: Row, event: RowEvent) -> Key:
        if not self.key:
            return (event.row_id,)
        try:
            return tuple(row[name] for name in self.key)
        except KeyError as error:
            raise MalformedMessage(f"a row of {event.schema}.{event.table} at {event.ts} lacks its key column {error}") from None
