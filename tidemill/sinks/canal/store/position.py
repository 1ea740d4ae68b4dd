"""Where an entry stands in the store, and an entry as the server gets it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.protocols.canal.codes import EntryType


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The entry with number `index`, from 0, among the entries with this commit_ts, in the store's order."""

    commit_ts: int
    index: int


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry. `data` is the serialized protobuf message; it stays valid as long as this object."""

    position: Position
    kind: EntryType
    schema: str
    table: str
    event_type: int
    is_ddl: bool
    rows: int
    data: bytes | memoryview
