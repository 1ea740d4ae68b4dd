"""One writer a log: a lock that ends with its process, and epochs that end writers a lock cannot reach.

The lock is the operating system's (flock) on LOG/writer.lock, so a killed process leaves none behind; the file says who holds
it. Each opening raises the epoch in every folder's owner.json; a writer reads it again before each publish and stops when it
is no longer its own. On object stores there are only epochs.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import uuid
from pathlib import Path

from tidemill.changelog import layout
from tidemill.changelog.layout import Owner
from tidemill.changelog.storage import Storage
from tidemill.errors import LogFenced, LogLocked, redact


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
            holder = os.pread(handle, 4096, 0)
            os.close(handle)
            raise LogLocked(
                f"{self._path} is held: {_describe(holder)} writes this log",
                hint="Stop it first; several captures need a log each.",
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode() + b"\n", 0)
        self._handle = handle

    def release(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _describe(holder: bytes) -> str:
    try:
        fields = json.loads(holder)
        return f"process {fields['pid']} on host {fields['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"


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


class Ownership:
    """This writer's right to publish in the folders of a log."""

    def __init__(self, storage: Storage, folders: list[str]) -> None:
        self._storage = storage
        self._writer = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:12]}"
        self._owners: dict[str, Owner] = {}
        for folder in folders:
            self._take(folder)

    @property
    def writer(self) -> str:
        return self._writer

    def epoch(self, folder: str) -> int:
        return self._owners[folder].epoch

    def _take(self, folder: str) -> None:
        current = self._read(folder)
        owner = Owner(current.epoch + 1 if current else 1, self._writer)
        self._storage.replace(f"{folder}/{layout.OWNER}", owner.to_json())
        self._owners[folder] = owner

    def _read(self, folder: str) -> Owner | None:
        name = f"{folder}/{layout.OWNER}"
        data = self._storage.read(name)
        return Owner.from_json(data, redact(self._storage.path(name))) if data is not None else None

    def check(self, folder: str) -> None:
        """Raises LogFenced naming the writer that has taken the folder."""
        mine = self._owners[folder]
        if self._storage.read(f"{folder}/{layout.OWNER}") == mine.to_json():
            return
        current = self._read(folder)
        if current == mine:
            return
        taken = f"epoch {current.epoch} of {current.writer}" if current else "nobody: owner.json is gone"
        raise LogFenced(
            f"{redact(self._storage.path(folder))} belongs to {taken}, no longer to epoch {mine.epoch} of {mine.writer}",
            hint="Another writer has opened this log; this one stops.",
        )
