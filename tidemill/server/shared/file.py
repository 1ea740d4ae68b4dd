"""A small file below LOG/server that several servers change. See `changelog.storage.state_file`."""

from __future__ import annotations

from tidemill.changelog.log_format import SERVER
from tidemill.changelog.storage.base import Storage
from tidemill.changelog.storage.durable import make_folder
from tidemill.changelog.storage.outcomes import storage_errors
from tidemill.changelog.storage.state_file import Change, StateFile

__all__ = ["Change", "SharedFile", "make_private"]


class SharedFile(StateFile):
    """One file, in a folder that only this user may read: it may hold passwords."""

    def __init__(self, storage: Storage, name: str, *, durable: bool = True) -> None:
        """`name`: below LOG/server."""
        super().__init__(storage, f"{SERVER}/{name}", durable=durable)
        self._log = storage

    def change(self, change: Change) -> bytes | None:
        make_private(self._log)
        return super().change(change)


def make_private(storage: Storage) -> None:
    """Make LOG/server on a file system, closed to other users. Raises LogUnavailable, LogRefused, DiskLow."""
    if storage.local:
        folder = storage.path(SERVER)
        with storage_errors(folder, writing=True):
            make_folder(folder, mode=0o700)
