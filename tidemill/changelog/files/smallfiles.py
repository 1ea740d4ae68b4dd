"""head.json and log.json as their writer keeps them: a writer that lost its folder cannot bring an old version back.

Locally the folder's lock sees to it. On an object store each version is swapped for the one before, so that a PUT which was under way
when another writer came fails when it arrives. A version is read first, then that the folder is still this writer's, then it is swapped:
the other order would let in a version on top of a successor's.
"""

from __future__ import annotations

from dataclasses import replace

from tidemill.changelog import layout
from tidemill.changelog.layout import LogIdentity
from tidemill.changelog.ownership import Ownership
from tidemill.changelog.reader import parse_head, read_identity, read_synced
from tidemill.changelog.storage.open import Storage, Token
from tidemill.errors import LogError, redact

WRITER_EPOCH = "writer_epoch"
"""Makes log.json of each owner unlike all before."""


class HeadFile:
    """A folder's head.json, and where that is not synced, synced.json: what a crash of the machine leaves of it. Calls take turns.

    What it says is true whoever wrote it: nothing at or below it is missing. So a late one of a writer before is kept if it is higher.
    """

    def __init__(self, storage: Storage, folder: str, ownership: Ownership) -> None:
        self._storage, self._folder, self._ownership = storage, folder, ownership
        self._name = f"{folder}/{layout.HEAD}"
        self._token: Token | None = None
        self.synced = read_synced(storage, folder) or 0  # a crash of the machine does not undo it
        self.said = self._read()
        """What head.json said when its folder was opened; 0 where there was none."""
        self.ts = max(self.said, self.synced)

    def sync(self, ts: int) -> None:
        """`ts`, which is no more than was put, is safe from a crash of the machine."""
        if not self._storage.can_swap:
            # Not head.json itself: the next version, which is not synced, could take a synced one along.
            self._storage.replace(f"{self._folder}/{layout.SYNCED}", layout.format_ts_file("resolved_ts", ts))
        self.synced = ts

    def _read(self) -> int:
        """What it says; 0 where there is none."""
        if self._storage.can_swap:
            data, self._token = self._storage.versioned(self._name) or (None, None)
        else:
            data = self._storage.read(self._name)
        return parse_head(data, self._storage.path(self._name)) or 0

    def put(self, ts: int) -> int:
        """Write it, as the folder's owner. Returns what it says now: `ts`, or a higher one. Raises LogFenced."""
        data = layout.format_ts_file("resolved_ts", ts)
        if not self._storage.can_swap:
            # Unsynced: should a crash of the machine undo it, the last segment's end and what `sync` wrote still stand.
            self._storage.replace(self._name, data, durable=False)
            self.ts = ts
            return ts
        while (token := self._storage.swap(self._name, self._token, data)) is None:
            there = self._read()
            self._ownership.check(self._folder)
            if there >= ts:
                self.ts = there
                return there
        self._token, self.ts = token, ts
        return ts


class IdentityFile:
    """log.json, of the owner of the schema stream; others only read it."""

    def __init__(self, storage: Storage, ownership: Ownership) -> None:
        self._storage, self._ownership = storage, ownership
        self._token: Token | None = None

    def read(self) -> LogIdentity:
        """As it is."""
        return read_identity(self._storage)

    def take(self) -> None:
        """From now on nobody else can write it."""
        if not self._storage.can_swap:
            return
        while True:
            found = self._storage.versioned(layout.IDENTITY)
            if found is None:
                raise LogError(f"{redact(self._storage.location)} is not a change log any more: it has no {layout.IDENTITY}")
            identity = LogIdentity.from_json(found[0], redact(self._storage.path(layout.IDENTITY)))
            self._ownership.check(layout.SCHEMA)
            self._token = self._storage.swap(layout.IDENTITY, found[1], self._signed(identity).to_json().encode())
            if self._token is not None:
                return

    def write(self, identity: LogIdentity) -> LogIdentity:
        """Returns what it says now. Raises LogFenced."""
        if not self._storage.can_swap:
            with self._ownership.publishing(layout.SCHEMA):
                self._storage.replace(layout.IDENTITY, identity.to_json().encode())
            return identity
        signed = self._signed(identity)
        while (token := self._storage.swap(layout.IDENTITY, self._token, signed.to_json().encode())) is None:
            self._own_version()
        self._token = token
        return signed

    def _own_version(self) -> None:
        """Go on from the version that is there: a request of this writer that seemed to have failed was done after all. Raises LogFenced,
        and LogError where it is somebody else's."""
        found = self._storage.versioned(layout.IDENTITY)
        self._ownership.check(layout.SCHEMA)
        name = redact(self._storage.path(layout.IDENTITY))
        mine = self._ownership.epoch(layout.SCHEMA)
        if found is None or found[1] == self._token or LogIdentity.from_json(found[0], name).extra.get(WRITER_EPOCH) != mine:
            raise LogError(f"{name} was changed by somebody else", hint="Start the writer again.")
        self._token = found[1]

    def _signed(self, identity: LogIdentity) -> LogIdentity:
        return replace(identity, extra={**identity.extra, WRITER_EPOCH: self._ownership.epoch(layout.SCHEMA)})
