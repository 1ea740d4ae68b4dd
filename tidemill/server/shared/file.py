"""A small file on the log's storage that several servers change: reading it and writing what follows from it are one step.

On a file system a lock makes them one step, on an object store a conditional PUT. Other stores have neither: there a log has one server.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidemill.changelog.log_format import SERVER
from tidemill.changelog.storage.flock import FolderLock
from tidemill.changelog.storage.open import Storage
from tidemill.changelog.storage.outcomes import storage_errors

Change = Callable[[bytes | None], bytes | None]
"""Makes the new content of the old one (None: there is no file). It returns None if nothing is to be written. Each version that it makes
has to differ from all others, because its content shows whose request won."""


class SharedFile:
    """One file. Its calls do IO."""

    def __init__(self, storage: Storage, name: str) -> None:
        """`name`: below LOG/server, where only this user may read: the file may hold passwords."""
        self._storage, self._name = storage, f"{SERVER}/{name}"
        self.place = storage.path(self._name)
        self._lock = FolderLock(self.place) if storage.local else None

    def read(self) -> bytes | None:
        """Raises LogUnavailable, LogRefused."""
        with storage_errors(self.place):
            return self._storage.read(self._name)

    def change(self, change: Change, *, durable: bool = True) -> bytes | None:
        """Write what `change` makes of the content. Return what was written; None if nothing was. Raises what `change` raises, FolderHeld,
        LogUnavailable, LogRefused."""
        with storage_errors(self.place, writing=True):
            if self._lock is not None:
                make_private(self._storage)
                with self._lock:
                    return self._replace(change, durable)
            if not self._storage.can_swap:
                return self._replace(change, durable)
            while True:
                found = self._storage.versioned(self._name)
                data = change(found[0] if found is not None else None)
                if data is None or self._storage.swap(self._name, found[1] if found is not None else None, data) is not None:
                    return data

    def _replace(self, change: Change, durable: bool) -> bytes | None:
        data = change(self._storage.read(self._name))
        if data is not None:
            self._storage.replace(self._name, data, durable=durable)
        return data


def make_private(storage: Storage) -> None:
    """Make LOG/server on a file system, closed to other users."""
    folder = Path(storage.path(SERVER))
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
