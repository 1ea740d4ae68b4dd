"""A batch as a client gets it: its id and its entries, which are parsed when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tidemill.protocols.canal.codes import EntryType
from tidemill.protocols.canal.decode import events_of
from tidemill.protocols.canal.events import Entry, Event, Header, RowChange, Transaction
from tidemill.protocols.canal.parse import parse_content, parse_head

NOTHING = -1
"""The id of a batch without anything."""


class LazyEntry:
    """An entry. `raw` are its bytes; the header is parsed when it is first asked for, and so is the content. Both raise EntryError."""

    __slots__ = ("_content", "_entry", "_header", "_type", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._type: EntryType | None = None
        self._header: Header | None = None
        self._content = b""
        self._entry: Entry | None = None

    def parse_header(self) -> Header:
        """Parse the header, if that has not been done yet."""
        if self._header is None:
            self._type, self._header, self._content = parse_head(self.raw)
        return self._header

    @property
    def header(self) -> Header:
        return self.parse_header()

    @property
    def type(self) -> EntryType:
        self.parse_header()
        assert self._type is not None, "it is set with the header"
        return self._type

    @property
    def entry(self) -> Entry:
        """The whole entry, as it stands on the wire."""
        if self._entry is None:
            self._entry = parse_content(self.type, self.header, self._content)
            self._content = b""
        return self._entry

    @property
    def change(self) -> RowChange | None:
        """Rows or a statement; None for other entries than ROWDATA."""
        return self.entry.change

    @property
    def transaction(self) -> Transaction | None:
        """The content of TRANSACTIONBEGIN and TRANSACTIONEND, None for others."""
        return self.entry.transaction

    def events(self) -> list[Event]:
        """What the entry says, typed: one event for each row."""
        return events_of(self.entry)

    def __repr__(self) -> str:
        return f"LazyEntry({len(self.raw)} bytes)"


@dataclass(frozen=True, slots=True)
class Batch:
    """What one GET gave. An `id` of -1: there was nothing, and there is nothing to acknowledge. `connection`: the number of the client's
    connection that it came on; ids of one are not those of another."""

    id: int
    raw: tuple[bytes, ...] = field(repr=False, default=())
    connection: int = field(compare=False, default=0)
    _entries: list[LazyEntry] = field(init=False, repr=False, compare=False, default_factory=list)

    @property
    def entries(self) -> Sequence[LazyEntry]:
        """The entries, made when they are first asked for."""
        if len(self._entries) < len(self.raw):
            self._entries.extend(map(LazyEntry, self.raw))
        return self._entries

    @property
    def empty(self) -> bool:
        """Whether there was nothing to give."""
        return self.id == NOTHING

    def __len__(self) -> int:
        return len(self.raw)

    def __bool__(self) -> bool:
        return not self.empty

    def __iter__(self) -> Iterator[LazyEntry]:
        return iter(self.entries)

    def events(self) -> Iterator[Event]:
        """All events of all entries, typed. Raises EntryError."""
        for entry in self.entries:
            yield from entry.events()
