"""Who may write: a lock that ends with its process, and epochs that end writers a lock cannot reach.

The lock is the operating system's (flock) on LOG/writer.lock, so a killed process leaves none behind; the file says who holds
it. Each opening raises the epoch in the owner.json of every folder it takes; a writer reads it again before each publish and stops
when it is no longer its own. A writer may be stopped between its look and its publication, for as long as it takes another one to
take the folder. What keeps it from publishing then:

- Locally a second, short lock on the folder makes look and publication one step.
- An object store has no such step, but compare-and-swap: a writer swaps what it is about to publish into owner.json first. Its
  successor finds it there and publishes the same, so a late PUT of the one before changes nothing; its next swap fails.
- Elsewhere nothing does. A log there has one writer at a time, and whoever starts a second one stops the first.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tidemill.changelog import layout
from tidemill.changelog.layout import Owner
from tidemill.changelog.storage.flock import FolderLock, describe_holder, holder
from tidemill.changelog.storage.open import Storage, Token
from tidemill.changelog.storage.outcomes import storage_errors
from tidemill.errors import LogError, LogFenced, LogLocked, redact


class LocalLock:
    """Held from `take` until `release` or the end of the process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle = -1

    def take(self) -> None:
        """Raises LogLocked naming the pid and host of the holder, LogUnavailable, LogRefused."""
        with storage_errors(self._path, writing=True):
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                self._lock(handle)
            except BaseException:
                os.close(handle)
                raise
            self._handle = handle

    def _lock(self, handle: int) -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LogLocked(
                f"{self._path} is held: {describe_holder(os.pread(handle, 4096, 0))} writes this log",
                hint="Stop it first; several captures need a log each.",
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, holder(), 0)

    def release(self) -> None:
        if self._handle >= 0:
            with contextlib.suppress(OSError):  # a file system that is gone holds no lock
                os.close(self._handle)
            self._handle = -1


def lock_of(storage: Storage) -> LocalLock | None:
    """The lock of a local log; None where there is no locking."""
    if not storage.local:
        return None
    with storage_errors(storage.location, writing=True):
        Path(storage.location).mkdir(parents=True, exist_ok=True)
    return LocalLock(storage.path(layout.LOCK))


def check_free(storage: Storage) -> None:
    """Raises LogLocked if another process writes a local log. Says nothing about the next moment: the writer takes the lock itself."""
    if not storage.local or layout.LOCK not in storage.names(""):
        return
    lock = LocalLock(storage.path(layout.LOCK))
    lock.take()
    lock.release()


def check_shareable(storage: Storage) -> None:
    """Raises LogError where several writers cannot share a log, whether there is one yet or not."""
    if storage.local or storage.can_swap:
        return
    raise LogError(
        f"{redact(storage.location)}: a capture in groups needs a log on a store with conditional PUT (If-Match), or on a file system: "
        "this storage does no conditional PUT, or Tidemill cannot ask it to, and nothing else keeps a writer that was taken for dead from "
        "publishing later",
        hint="Capture in one process without groups (--workers 1), or keep the log on S3, on a store that does S3's conditional PUT, or on "
        "a disk that all writers mount.",
    )


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


TRIES = 100
"""So often a folder is tried to be taken that others take at the same time."""


class Ownership:
    """This writer's right to publish in its folders."""

    def __init__(self, storage: Storage, folders: list[str]) -> None:
        """Takes the folders, and removes what writers before did not get to publish. Raises LogLocked."""
        self._storage = storage
        self._swaps = storage.can_swap
        self._writer = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:12]}"
        self._owners: dict[str, Owner] = {}
        self._tokens: dict[str, Token] = {}
        self._locks = {folder: FolderLock(storage.path(folder)) if storage.local else threading.Lock() for folder in folders}
        for folder in folders:
            with self._locks[folder]:
                self._take(folder)

    @property
    def writer(self) -> str:
        return self._writer

    def epoch(self, folder: str) -> int:
        return self._owners[folder].epoch

    def pledged_to(self, folder: str) -> int | None:
        """The end of the segment that was announced last, by this writer or one before."""
        return self._owners[folder].pledged_to

    def joining(self, folder: str) -> tuple[int, int] | None:
        """The interval that segments were announced to be joined to, by this writer or one before."""
        return self._owners[folder].joining

    @contextlib.contextmanager
    def publishing(self, folder: str) -> Iterator[None]:
        """What gets its name inside gets it, on a local disk, while the folder is this writer's.

        Raises LogFenced naming the writer that has taken the folder; LogLocked if another one holds it for too long.
        """
        if not self._storage.local:
            self.check(folder)
            yield
            return
        with self._locks[folder]:
            self.check(folder)
            yield

    @contextlib.contextmanager
    def publishing_to(self, folder: str, end: int) -> Iterator[None]:
        """As `publishing`, of a segment up to `end`, which an object store learns first: whoever takes the folder then knows what may still
        appear in it."""
        if self._swaps:
            self._announce(folder, lambda owner: replace(owner, pledged_to=end))
            yield
            return
        with self.publishing(folder):
            yield

    @contextlib.contextmanager
    def publishing_joined(self, folder: str, from_ts: int, to_ts: int) -> Iterator[None]:
        """As `publishing_to`, of segments that become one of (from_ts, to_ts]."""
        if self._swaps:
            self._announce(folder, lambda owner: replace(owner, joining=(from_ts, to_ts)))
            yield
            return
        with self.publishing(folder):
            yield

    # ---- owner.json

    def _take(self, folder: str) -> None:
        """Under the lock."""
        if self._swaps:
            self._take_by_swap(folder)
            return
        current = self._read(folder)
        owner = Owner(current.epoch + 1 if current else 1, self._writer)
        self._storage.replace(_file(folder), owner.to_json())
        self._owners[folder] = owner
        for name in self._storage.names(folder):  # under the lock: later these could be a living writer's
            if layout.is_temporary(name):
                self._storage.delete(f"{folder}/{name}")

    def _take_by_swap(self, folder: str) -> None:
        for _ in range(TRIES):
            found = self._storage.versioned(_file(folder))
            current = self._parsed(folder, found[0]) if found else None
            owner = replace(current, epoch=current.epoch + 1, writer=self._writer) if current else Owner(1, self._writer)
            token = self._storage.swap(_file(folder), found[1] if found else None, owner.to_json())
            if token is not None:
                self._owners[folder], self._tokens[folder] = owner, token
                return
        raise LogLocked(f"{redact(self._storage.path(folder))} is being taken by others again and again", hint="Let one of them write it.")

    def _announce(self, folder: str, change: Callable[[Owner], Owner]) -> None:
        """Change owner.json, which fails if it is another writer's. Raises LogFenced."""
        with self._locks[folder]:
            while True:
                owner = change(self._owners[folder])
                token = self._storage.swap(_file(folder), self._tokens[folder], owner.to_json())
                if token is not None:
                    self._owners[folder], self._tokens[folder] = owner, token
                    return
                found = self._storage.versioned(_file(folder))
                current = self._parsed(folder, found[0]) if found else None
                if found is None or not self._owners[folder].is_same(current):
                    raise self._fenced(folder, current)
                # A request of this writer that seemed to have failed was only late.
                self._tokens[folder] = found[1]

    def _read(self, folder: str) -> Owner | None:
        data = self._storage.read(_file(folder))
        return self._parsed(folder, data) if data is not None else None

    def _parsed(self, folder: str, data: bytes) -> Owner:
        return Owner.from_json(data, redact(self._storage.path(_file(folder))))

    def check(self, folder: str) -> None:
        """Raises LogFenced naming the writer that has taken the folder. Says nothing about the next moment."""
        mine = self._owners[folder]
        data = self._storage.read(_file(folder))
        if data == mine.to_json():
            return
        current = self._parsed(folder, data) if data is not None else None
        if not mine.is_same(current):
            raise self._fenced(folder, current)

    def _fenced(self, folder: str, current: Owner | None) -> LogFenced:
        mine = self._owners[folder]
        taken = f"epoch {current.epoch} of {current.writer}" if current else "nobody: owner.json is gone"
        return LogFenced(
            f"{redact(self._storage.path(folder))} belongs to {taken}, no longer to epoch {mine.epoch} of {mine.writer}",
            hint="Another writer has taken it over; this one stops.",
        )


def _file(folder: str) -> str:
    return f"{folder}/{layout.OWNER}"
