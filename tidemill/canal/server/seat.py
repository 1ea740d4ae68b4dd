"""Who may write the clients' places: the server that took the seat last. Its epoch is in clients/owner.json.

A server that was frozen, or cut off, may wake when another one serves. In a folder looking at the epoch and writing are one step, under a
short lock. On an object store each client's file is written by compare-and-swap, and who takes the seat writes them all once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from tidemill import statefile
from tidemill.changelog.storage.base import Storage
from tidemill.changelog.storage.flock import FolderLock
from tidemill.errors import ConfigError, LogFenced, redact

OWNER = "clients/owner.json"


def check_turns(storage: Storage) -> None:
    """Raises ConfigError if servers cannot take turns on this storage."""
    if storage.local or storage.can_swap:
        return
    raise ConfigError(
        f"--zookeeper: {redact(storage.location)} does no conditional PUT (If-Match), or Tidemill cannot ask it to, and nothing else keeps "
        "a server that was frozen from writing over the positions of the one that serves in its place",
        hint="Keep the entry store on S3, on a store that does S3's conditional PUT, or on a file system that all servers mount; or run "
        "one server, without --zookeeper and canal.zkServers.",
    )


class Seat:
    """The right to write places. Not before `take`."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._lock = FolderLock(storage.path("clients/seat")) if storage.local else None
        self.epoch = 0

    def take(self) -> int:
        """Take the seat: the one who had it cannot write any more. Returns the epoch. Raises the storage's errors."""
        if self._lock is not None:
            with self._lock:
                self.epoch = self._found() + 1
                self._storage.replace(OWNER, self._written())
            return self.epoch
        if not self._storage.can_swap:
            self.epoch = self._found() + 1
            self._storage.replace(OWNER, self._written())
            return self.epoch
        while True:
            before = self._storage.versioned(OWNER)
            self.epoch = self._epoch_of(before[0] if before is not None else None) + 1
            if self._storage.swap(OWNER, before[1] if before is not None else None, self._written()) is not None:
                return self.epoch

    @contextmanager
    def held(self) -> Iterator[None]:
        """While places are written. Raises LogFenced if another server has the seat."""
        if self._lock is None:
            self.check()
            yield
            return
        with self._lock:
            self.check()
            yield

    def check(self) -> None:
        """Raises LogFenced if another server has the seat."""
        found = self._found()
        if found != self.epoch:
            raise LogFenced(
                f"another server serves the store {redact(self._storage.location)} (epoch {found}, this one has {self.epoch})",
                hint="One server serves a store at a time. End one of them, or let them take turns with --zookeeper.",
            )

    def _written(self) -> bytes:
        return (json.dumps({"epoch": self.epoch}) + "\n").encode()

    def _found(self) -> int:
        return self._epoch_of(self._storage.read(OWNER))

    def _epoch_of(self, data: bytes | None) -> int:
        if data is None:
            return 0
        return statefile.read(data, self._storage.path(OWNER)).integer("epoch")
