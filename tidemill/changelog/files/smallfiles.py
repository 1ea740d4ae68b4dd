"""head.json and log.json, written so that a writer that lost its folder cannot bring back an old version.

Locally the folder's lock ensures this. On an object store each version is swapped for the one before, so a PUT that was under way when
another writer took over fails. First the version is read, then the ownership is checked, then the version is swapped. In another order, a
late swap could replace a successor's version.
"""

from __future__ import annotations

from dataclasses import replace

from tidemill.changelog import log_format
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.ownership import Ownership
from tidemill.changelog.reader import parse_head, read_identity, read_synced
from tidemill.changelog.storage.base import Storage, Token
from tidemill.changelog.storage.state_file import StateFile
from tidemill.errors import LogError, redact

WRITER_EPOCH = "writer_epoch"
"""Makes log.json of each owner unique."""


class HeadFile:
    """A folder's head.json and, if that is not synced, synced.json: the head that survives a crash of the machine. Calls take turns.

    A head is true whoever wrote it: the folder is complete up to there. So a higher one from a previous writer is kept.
    """

    def __init__(self, storage: Storage, folder: str, ownership: Ownership) -> None:
        self._storage, self._folder, self._ownership = storage, folder, ownership
        self._name = f"{folder}/{log_format.HEAD}"
        self._token: Token | None = None
        self.synced = read_synced(storage, folder) or 0  # survives a crash of the machine
        self.said = self._read()
        """The head in head.json when its folder was opened; 0 without one."""
        self.ts = max(self.said, self.synced)

    def sync(self, ts: int) -> None:
        """Make `ts`, which was put before, survive a crash of the machine."""
        if not self._storage.can_swap:
            # head.json itself is not synced: its next, unsynced version could replace the synced one.
            self._storage.replace(f"{self._folder}/{log_format.SYNCED}", log_format.format_ts_file("resolved_ts", ts))
        self.synced = ts

    def _read(self) -> int:
        """Return the head in the file; 0 without one."""
        if self._storage.can_swap:
            data, self._token = self._storage.versioned(self._name) or (None, None)
        else:
            data = self._storage.read(self._name)
        return parse_head(data, self._storage.path(self._name)) or 0

    def put(self, ts: int, last: int = 0) -> int:
        """Write the head, as the folder's owner, and where the last segment ends (0: not said). Return the head in the file then: `ts`, or
        a higher one. Raises LogFenced."""
        data = log_format.format_head(ts, last)
        if not self._storage.can_swap:
            # Not synced: if a crash of the machine undoes it, the last segment's end and `sync` still hold.
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
    """log.json, for the owner of the schema stream; others only read it."""

    def __init__(self, storage: Storage, ownership: Ownership) -> None:
        self._storage, self._ownership = storage, ownership
        self._file = StateFile(storage, log_format.IDENTITY, held=True)
        self._written: bytes | None = None

    def read(self) -> LogIdentity:
        """Return log.json."""
        return read_identity(self._storage)

    def take(self) -> None:
        """Take log.json: nobody else can write it from now on."""
        if not self._storage.can_swap:
            return

        def taken(found: bytes | None) -> bytes:
            if found is None:
                raise LogError(f"{redact(self._storage.location)} is not a change log any more: it has no {log_format.IDENTITY}")
            identity = LogIdentity.from_json(found, redact(self._file.place))
            self._ownership.check(log_format.SCHEMA)
            return self._signed(identity).to_json().encode()

        self._written = self._file.change(taken)

    def write(self, identity: LogIdentity) -> LogIdentity:
        """Write log.json. Return its content then. Raises LogFenced; LogError if somebody else has written it."""
        if not self._storage.can_swap:
            with self._ownership.publishing(log_format.SCHEMA):
                self._storage.replace(log_format.IDENTITY, identity.to_json().encode())
            return identity
        signed = self._signed(identity)

        def written(found: bytes | None) -> bytes:
            if found != self._written:
                self._check_own(found)
            return signed.to_json().encode()

        self._written = self._file.change(written)
        return signed

    def _check_own(self, found: bytes | None) -> None:
        """An earlier request of this writer may have succeeded after it seemed to have failed. Raises LogFenced, LogError if the version is
        somebody else's."""
        self._ownership.check(log_format.SCHEMA)
        name, mine = redact(self._file.place), self._ownership.epoch(log_format.SCHEMA)
        if found is None or LogIdentity.from_json(found, name).extra.get(WRITER_EPOCH) != mine:
            raise LogError(f"{name} was changed by somebody else", hint="Start the writer again.")

    def _signed(self, identity: LogIdentity) -> LogIdentity:
        return replace(identity, extra={**identity.extra, WRITER_EPOCH: self._ownership.epoch(log_format.SCHEMA)})
