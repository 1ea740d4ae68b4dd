"""Who may write: a lock that ends with its process, and epochs that end writers a lock cannot reach.

The lock is the operating system's (flock) on LOG/writer.lock, so a killed process leaves none behind; the file says who holds
it. Each opening raises the epoch in the owner.json of every folder it takes; a writer reads it again before each publish and stops
when it is no longer its own. Locally a second, short lock on the folder makes the look and the publication one step, so that a
writer that was stopped in between cannot publish into a folder that another one has taken meanwhile.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tidemill.changelog import layout
from tidemill.changelog.fence import FolderLock, describe_holder, holder
from tidemill.changelog.layout import Owner
from tidemill.changelog.storage import Storage
from tidemill.errors import LogError, LogFenced, LogLocked, redact


class LocalLock:
    """Held from `take` until `release` or the end of the process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle = -1

    def take(self) -> None:
        """Raises LogLocked naming the pid and host of the holder."""
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found = os.pread(handle, 4096, 0)
            os.close(handle)
            raise LogLocked(
                f"{self._path} is held: {describe_holder(found)} writes this log",
                hint="Stop it first; several captures need a log each.",
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, holder(), 0)
        self._handle = handle

    def release(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def lock_of(storage: Storage) -> LocalLock | None:
    """The lock of a local log; None where there is no locking."""
    if not storage.local:
        return None
    Path(storage.location).mkdir(parents=True, exist_ok=True)
    return LocalLock(storage.path(layout.LOCK))


def check_free(storage: Storage) -> None:
    """Raises LogLocked if another process writes a local log. Says nothing about the next moment: the writer takes the lock itself."""
    if not storage.local or not Path(storage.path(layout.LOCK)).exists():
        return
    lock = LocalLock(storage.path(layout.LOCK))
    lock.take()
    lock.release()


@dataclass(frozen=True, slots=True)
class Share:
    """What one of several writers of a log writes."""

    schema: bool  # also log.json, the schema stream, and what retention lets go of
    partitions: frozenset[int]

    def folders(self) -> list[str]:
        """Its folders. Raises LogError for a share of nothing."""
        found = [layout.SCHEMA] if self.schema else []
        found += [layout.rows_folder(p) for p in sorted(self.partitions)]
        if not found:
            raise LogError("a writer of a log has the schema stream, or partitions, or both; this one has neither")
        return found


class Ownership:
    """This writer's right to publish in its folders."""

    def __init__(self, storage: Storage, folders: list[str]) -> None:
        """Takes the folders, and removes what writers before did not get to publish."""
        self._storage = storage
        self._writer = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:12]}"
        self._owners: dict[str, Owner] = {}
        self._locks = {folder: FolderLock(storage.path(folder)) for folder in folders if storage.local}
        for folder in folders:
            with self._locked(folder):
                self._take(folder)
                self._clean(folder)

    @property
    def writer(self) -> str:
        return self._writer

    def epoch(self, folder: str) -> int:
        return self._owners[folder].epoch

    @contextlib.contextmanager
    def publishing(self, folder: str) -> Iterator[None]:
        """What gets its name inside gets it while the folder is this writer's.

        Raises LogFenced naming the writer that has taken the folder; LogLocked if another one holds it for too long.
        """
        with self._locked(folder):
            self.check(folder)
            yield

    def _locked(self, folder: str) -> contextlib.AbstractContextManager[object]:
        return self._locks.get(folder) or contextlib.nullcontext()

    def _take(self, folder: str) -> None:
        current = self._read(folder)
        owner = Owner(current.epoch + 1 if current else 1, self._writer)
        self._storage.replace(f"{folder}/{layout.OWNER}", owner.to_json())
        self._owners[folder] = owner

    def _clean(self, folder: str) -> None:
        """Files that a dead writer did not get to publish. Under the lock: later they could be those of a living one."""
        for name in self._storage.names(folder):
            if layout.is_temporary(name):
                self._storage.delete(f"{folder}/{name}")

    def _read(self, folder: str) -> Owner | None:
        name = f"{folder}/{layout.OWNER}"
        data = self._storage.read(name)
        return Owner.from_json(data, redact(self._storage.path(name))) if data is not None else None

    def check(self, folder: str) -> None:
        """Raises LogFenced naming the writer that has taken the folder. Says nothing about the next moment."""
        mine = self._owners[folder]
        if self._storage.read(f"{folder}/{layout.OWNER}") == mine.to_json():
            return
        current = self._read(folder)
        if current == mine:
            return
        taken = f"epoch {current.epoch} of {current.writer}" if current else "nobody: owner.json is gone"
        raise LogFenced(
            f"{redact(self._storage.path(folder))} belongs to {taken}, no longer to epoch {mine.epoch} of {mine.writer}",
            hint="Another writer has taken it over; this one stops.",
        )
