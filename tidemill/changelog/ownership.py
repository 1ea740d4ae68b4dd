"""Who may write: a lock that ends with its process, and epochs that stop writers which a lock cannot reach.

The lock is the operating system's (flock) on LOG/writer.lock, so a killed process leaves none behind; the file says who holds it. Each
opening raises the epoch in the owner.json of every folder it takes. A writer reads owner.json before each publish, and stops if it is not
the owner any more. But a writer may be suspended between this check and its publication, while another one takes the folder. What keeps it
from publishing then:

- Locally, a second, short lock on the folder makes the check and the publication one step.
- An object store has no such lock, but compare-and-swap: a writer first swaps what it is about to publish into owner.json. Its
  successor finds it there and publishes the same. So a late PUT of the old writer changes nothing, and its next swap fails.
- Where a server writes the log, the file also names its term. A process of an earlier term cannot take the folder, so a leader that was
  frozen before it took it stays out.
- On other storage nothing does. A log there must have one writer at a time: whoever starts a second one must stop the first.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tidemill import statefile
from tidemill.changelog import log_format
from tidemill.changelog.storage.base import Storage
from tidemill.changelog.storage.durable import make_folder
from tidemill.changelog.storage.flock import FolderLock, describe_holder, holder
from tidemill.changelog.storage.outcomes import storage_errors
from tidemill.changelog.storage.state_file import StateFile
from tidemill.errors import LogError, LogFenced, LogLocked, redact

MOST_EPOCHS = 1 << 62


@dataclass(frozen=True, slots=True)
class Owner:
    """The content of owner.json: which writer may publish in a folder. A higher epoch ends all lower ones.

    On object stores a writer announces here what it is about to publish (`pledged_to`, `joining`). Even after another writer has taken the
    folder, an announced file may still appear.
    """

    epoch: int
    writer: str
    pledged_to: int | None = None  # the next segment ends here
    joining: tuple[int, int] | None = None  # segments that become this interval
    term: int = 0  # of the server whose capture this is; 0: of none

    def to_json(self) -> bytes:
        fields: dict[str, Any] = {"epoch": self.epoch, "writer": self.writer}
        if self.pledged_to is not None:
            fields["pledged_to"] = self.pledged_to
        if self.joining is not None:
            fields["joining"] = self.joining
        if self.term:
            fields["term"] = self.term
        return (json.dumps(fields) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes, name: str) -> Owner:
        """Raises LogCorrupt naming the file."""
        fields = statefile.read(data, name)
        joining = fields.integers("joining") if "joining" in fields else None
        if joining is not None and len(joining) != 2:
            raise fields.broken("joining is not a pair")
        return cls(
            fields.integer("epoch", 0, MOST_EPOCHS),
            fields.text("writer"),
            fields.integer("pledged_to") if "pledged_to" in fields else None,
            (joining[0], joining[1]) if joining is not None else None,
            fields.integer("term", 0, MOST_EPOCHS, default=0),
        )

    def is_same(self, other: Owner | None) -> bool:
        """The same writer, whatever it has announced."""
        return other is not None and (self.epoch, self.writer) == (other.epoch, other.writer)


class LocalLock:
    """A lock, held from `take` until `release` or the end of the process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle = -1

    def take(self) -> None:
        """Take the lock. Raises LogLocked naming the pid and host of the holder, LogUnavailable, LogRefused."""
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
    """Return the lock of a local log; None if the storage has no locks."""
    if not storage.local:
        return None
    with storage_errors(storage.location, writing=True):
        make_folder(storage.location)
    return LocalLock(storage.path(log_format.LOCK))


def take_or_pass(lock: LocalLock, storage: Storage, term: int) -> None:
    """Take the lock. The capture of a server that leads goes on without it if a server of an earlier term holds it, which may be frozen:
    the lease is the lock then, and epochs keep the other one from publishing. Raises LogLocked."""
    try:
        lock.take()
    except LogLocked:
        data = storage.read(_file(log_format.SCHEMA)) if term else None
        if data is None or not 0 < Owner.from_json(data, redact(storage.path(_file(log_format.SCHEMA)))).term < term:
            raise


def check_free(storage: Storage, term: int = 0) -> None:
    """Raise LogLocked if another process writes a local log. The answer may change at once: the writer takes the lock itself. `term` as for
    `take_or_pass`."""
    if not storage.local or log_format.LOCK not in storage.names(""):
        return
    lock = LocalLock(storage.path(log_format.LOCK))
    take_or_pass(lock, storage, term)
    lock.release()


def check_shareable(storage: Storage) -> None:
    """Raise LogError if several writers cannot share a log on this storage."""
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
    """The share of one of several writers of a log."""

    schema: bool  # also log.json, the schema stream, and retention
    partitions: frozenset[int]

    def folders(self) -> list[str]:
        """Return its folders. Raises LogError for an empty share."""
        found = [log_format.SCHEMA] if self.schema else []
        found += [log_format.rows_folder(p) for p in sorted(self.partitions)]
        if not found:
            raise LogError("a writer of a log has the schema stream, or partitions, or both; this one has neither")
        return found


class Ownership:
    """This writer's right to publish in its folders."""

    def __init__(self, storage: Storage, folders: list[str], term: int = 0) -> None:
        """Take the folders, and remove files that previous writers did not publish. `term`: of the server that leads; 0: no server does.

        Raises LogLocked, LogFenced if a server of a later term has taken a folder."""
        self._term = term
        self._storage = storage
        self._swaps = storage.can_swap
        self._writer = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:12]}"
        self._owners: dict[str, Owner] = {}
        self._locks = {folder: FolderLock(storage.path(folder)) if storage.local else threading.Lock() for folder in folders}
        self._files = {folder: StateFile(storage, _file(folder), held=True) for folder in folders}
        for folder in folders:
            with self._locks[folder]:
                self._take(folder)

    @property
    def writer(self) -> str:
        return self._writer

    def epoch(self, folder: str) -> int:
        return self._owners[folder].epoch

    def pledged_to(self, folder: str) -> int | None:
        """Return the end of the segment announced last, by this writer or a previous one."""
        return self._owners[folder].pledged_to

    def joining(self, folder: str) -> tuple[int, int] | None:
        """Return the interval of the join announced last, by this writer or a previous one."""
        return self._owners[folder].joining

    @contextlib.contextmanager
    def publishing(self, folder: str) -> Iterator[None]:
        """Run a block that publishes a file. On a local disk it runs only while the folder is this writer's.

        Raises LogFenced naming the writer that has taken the folder, LogLocked if another one holds it for too long.
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
        """Like `publishing`, for a segment up to `end`. On an object store the segment is announced first: whoever takes the folder then
        knows what may still appear in it."""
        if self._swaps:
            self._announce(folder, lambda owner: replace(owner, pledged_to=end))
            yield
            return
        with self.publishing(folder):
            yield

    @contextlib.contextmanager
    def publishing_joined(self, folder: str, from_ts: int, to_ts: int) -> Iterator[None]:
        """Like `publishing_to`, for a join of segments into one of (from_ts, to_ts]."""
        if self._swaps:
            self._announce(folder, lambda owner: replace(owner, joining=(from_ts, to_ts)))
            yield
            return
        with self.publishing(folder):
            yield

    # ---- owner.json

    def _take(self, folder: str) -> None:
        """Take a folder, under its lock. What the writer before has announced stays: it may still appear."""

        def taken(found: bytes | None) -> bytes:
            current = self._parsed(folder, found) if found is not None else None
            self._check_term(folder, current)
            epoch = current.epoch + 1 if current is not None else 1
            self._owners[folder] = replace(current or Owner(epoch, ""), epoch=epoch, writer=self._writer, term=self._term)
            return self._owners[folder].to_json()

        self._files[folder].change(taken)
        if self._swaps:
            return
        for name in self._storage.names(folder):  # under the lock: later these could be files of a live writer
            if log_format.is_temporary(name):
                self._storage.delete(f"{folder}/{name}")

    def _check_term(self, folder: str, current: Owner | None) -> None:
        if current is not None and self._term and current.term > self._term:
            raise LogFenced(
                f"{redact(self._storage.path(folder))} is of term {current.term}; the server of this process led in term {self._term}",
                hint="Another server leads now; this one stops.",
            )

    def _announce(self, folder: str, change: Callable[[Owner], Owner]) -> None:
        """Change owner.json by compare-and-swap. Raises LogFenced if it is another writer's."""
        with self._locks[folder]:
            owner = change(self._owners[folder])

            def announced(found: bytes | None) -> bytes:
                """The file is this writer's, also if an earlier request arrived after it seemed to have failed."""
                current = self._parsed(folder, found) if found is not None else None
                if not self._owners[folder].is_same(current):
                    raise self._fenced(folder, current)
                return owner.to_json()

            self._files[folder].change(announced)
            self._owners[folder] = owner

    def _parsed(self, folder: str, data: bytes) -> Owner:
        return Owner.from_json(data, redact(self._storage.path(_file(folder))))

    def check(self, folder: str) -> None:
        """Raise LogFenced naming the writer that has taken the folder. The answer may change at once."""
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
    return f"{folder}/{log_format.OWNER}"
