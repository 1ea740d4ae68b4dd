"""Who may write the clients' places: the server that took the seat last. Its epoch is in clients/owner.json.

A server that was frozen, or cut off, may wake when another one serves. In a folder looking at the epoch and writing are one step, under a
short lock. On an object store each client's file is written by compare-and-swap, and who takes the seat writes them all once.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from tidemill import statefile
from tidemill.changelog.storage.base import Storage
from tidemill.changelog.storage.flock import FolderLock
from tidemill.changelog.storage.state_file import StateFile
from tidemill.errors import ConfigError, LogCorrupt, LogFenced, redact

OWNER = "clients/owner.json"
SEAT_FILE = statefile.Kind(LogCorrupt, "Restore it from a copy. If there is none: end all servers of this store, remove it, and start one.")


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
        self._lock = FolderLock(storage.path("clients/seat")) if storage.local else nullcontext()
        self._file = StateFile(storage, OWNER, lock=self._lock)
        self._server = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:12]}"  # two that take it at once write different files
        self.epoch = 0

    def take(self) -> int:
        """Take the seat: the one who had it cannot write any more. Returns the epoch. Raises the storage's errors."""

        def taken(found: bytes | None) -> bytes:
            self.epoch = self._epoch_of(found) + 1
            return (json.dumps({"epoch": self.epoch, "server": self._server}) + "\n").encode()

        self._file.change(taken)
        return self.epoch

    @contextmanager
    def held(self) -> Iterator[None]:
        """While places are written. Raises LogFenced if another server has the seat."""
        with self._lock:
            self.check()
            yield

    def check(self) -> None:
        """Raises LogFenced if another server has the seat."""
        found = self._epoch_of(self._file.read())
        if found != self.epoch:
            raise LogFenced(
                f"another server serves the store {redact(self._storage.location)} (epoch {found}, this one has {self.epoch})",
                hint="One server serves a store at a time. End one of them, or let them take turns with --zookeeper.",
            )

    def _epoch_of(self, data: bytes | None) -> int:
        found = statefile.whole(data, self._file.place, SEAT_FILE)
        return 0 if found is None else found.integer("epoch")
