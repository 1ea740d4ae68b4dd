"""The servers of a log: each writes LOG/server/members/ID.json with every beat. Calls do IO, and belong in a thread.

Clocks of two machines are never compared: a server is there while its beat rises, by the clock of whoever looks.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from tidemill import statefile
from tidemill.changelog.log_format import SERVER
from tidemill.changelog.storage.open import Storage
from tidemill.errors import LogCorrupt, redact
from tidemill.server.shared.file import make_private

FOLDER = f"{SERVER}/members"
FORGOTTEN_AFTER = 10
"""An entry is removed after so many TTLs without a beat."""


@dataclass(frozen=True, slots=True)
class Member:
    """A server. `formats`: the newest state that it reads."""

    id: str
    address: str
    version: str
    formats: int
    beat: int = 0


class Members:
    """The list, as one server keeps its entry in it and reads it."""

    def __init__(self, storage: Storage, me: Member, ttl: float) -> None:
        self._storage, self._me, self._ttl = storage, me, ttl
        self._seen: dict[str, tuple[Member, float]] = {}
        self._present: dict[str, Member] = {me.id: me}

    @property
    def present(self) -> list[Member]:
        """The servers that were there at the last look, by id; this one is among them."""
        return [self._present[name] for name in sorted(self._present)]

    def beat(self) -> None:
        """Write this server's entry. Raises LogUnavailable, LogRefused."""
        make_private(self._storage)
        self._me = replace(self._me, beat=self._me.beat + 1)
        self._storage.replace(_file(self._me.id), (json.dumps(asdict(self._me)) + "\n").encode(), durable=False)

    def look(self, now: float) -> None:
        """Read the entries. Those whose beat has not risen for a TTL are not there; much later they are removed."""
        found = {name: one for name in self._storage.names(FOLDER) if name.endswith(".json") and (one := self._read(name)) is not None}
        for one in found.values():
            before = self._seen.get(one.id)
            if before is None or before[0] != one:
                self._seen[one.id] = one, now
        self._seen = {name: seen for name, seen in self._seen.items() if name in {one.id for one in found.values()}}
        self._present = {name: one for name, (one, at) in self._seen.items() if now - at < self._ttl} | {self._me.id: self._me}
        for name, (_, at) in [*self._seen.items()]:
            if now - at > FORGOTTEN_AFTER * self._ttl and name != self._me.id:
                self._storage.delete(_file(name))

    def leave(self) -> None:
        """Remove this server's entry."""
        self._storage.delete(_file(self._me.id))

    def _read(self, name: str) -> Member | None:
        data = self._storage.read(f"{FOLDER}/{name}")
        if data is None:
            return None
        try:
            found = statefile.read(data, redact(self._storage.path(f"{FOLDER}/{name}")))
            texts = (found.text("id"), found.text("address"), found.text("version"))
            return Member(*texts, found.integer("formats"), found.integer("beat"))
        except LogCorrupt:
            return None  # it is written again with its next beat


def _file(name: str) -> str:
    return f"{FOLDER}/{name}.json"
