"""Short locks: that of one folder of a local log, under which reading owner.json and the publication that depends on it are one step; and
that of a file which several writers append to.

They are the operating system's (flock), the folder's on a file beside it, and end with their process. A writer that is suspended while it
holds one keeps others out. A writer that waits too long raises an error, which names the process that holds a folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import threading
from pathlib import Path
from types import TracebackType

from tidemill import statefile
from tidemill.changelog.storage.durable import make_folder
from tidemill.changelog.storage.outcomes import storage_errors
from tidemill.errors import FolderHeld, LogCorrupt

PATIENCE = 30.0
"""Seconds to wait for another writer's step."""


def holder() -> bytes:
    """Return the content of a lock file: who holds the lock."""
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode() + b"\n"


def describe_holder(content: bytes) -> str:
    """Return a lock file's content in words."""
    try:
        fields = statefile.read(content, "the lock file")
        return f"process {fields.integer('pid')} on host {fields.text('host')}"
    except LogCorrupt:
        return "another process"


class FileLock:
    """The lock of a file for one writer; its threads take turns. Use it as a context manager."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._turn = threading.Lock()
        self._handle = -1

    def __enter__(self) -> None:
        """Take the lock. Raises FolderHeld; LogUnavailable, LogRefused if the file system fails."""
        self._turn.acquire()
        try:
            self._handle = self._locked()
        except BaseException:
            self._turn.release()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        handle, self._handle = self._handle, -1
        try:
            # A child forked meanwhile shares the lock: closing alone would not release it.
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_UN)
            with contextlib.suppress(OSError):  # a file system that is gone holds no lock
                os.close(handle)
        finally:
            self._turn.release()

    def _locked(self) -> int:
        with storage_errors(self.path, writing=True):
            handle = self._open()
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._wait(handle)
            except OSError:
                os.close(handle)
                raise
            try:
                self._sign(handle)
            except OSError:
                os.close(handle)
                raise
            return handle

    def _wait(self, handle: int) -> None:
        """Wait until the lock is free. Raises FolderHeld, and closes the handle."""
        waiting = _Waiting(handle)
        if waiting.over.wait(PATIENCE):
            if waiting.failure is not None:
                os.close(handle)
                raise waiting.failure
            return
        by = self._holder(handle)
        if waiting.give_up():
            raise FolderHeld(
                f"{self.path} has been held for {PATIENCE:g} s: {by} is in the middle of a step",
                hint="It is stopped, or its disk hangs. Let it go on, or end it (kill -9); then try again.",
            )

    def _open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CLOEXEC)

    def _sign(self, handle: int) -> None:
        """Do nothing: the file's content is its writers'."""

    def _holder(self, handle: int) -> str:
        return "another process"


class FolderLock(FileLock):
    """A folder's lock for one writer; its threads take turns. Use it as a context manager."""

    def __init__(self, folder: str) -> None:
        """`folder`: a path."""
        super().__init__(f"{folder}.lock")
        self._pid, self._signature = 0, b""

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            return os.open(self.path, flags, 0o644)
        except FileNotFoundError:
            make_folder(Path(self.path).parent)
            return os.open(self.path, flags, 0o644)

    def _sign(self, handle: int) -> None:
        """Write the holder into the file, unless it is there already."""
        pid = os.getpid()
        if pid != self._pid:
            self._pid, self._signature = pid, holder()
        if os.pread(handle, 4096, 0) != self._signature:
            os.ftruncate(handle, 0)
            os.pwrite(handle, self._signature, 0)

    def _holder(self, handle: int) -> str:
        return describe_holder(os.pread(handle, 4096, 0))


class _Waiting:
    """A thread that waits for a lock: flock has no timeout."""

    def __init__(self, handle: int) -> None:
        self.over = threading.Event()
        self._handle = handle
        self._turn = threading.Lock()
        self._given_up = False
        self.failure: OSError | None = None
        threading.Thread(target=self._run, name="flock", daemon=True).start()

    def _run(self) -> None:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX)
        except OSError as error:
            self.failure = error
        with self._turn:
            if self._given_up:
                os.close(self._handle)
            else:
                self.over.set()

    def give_up(self) -> bool:
        """Give up waiting. Returns False if the lock came at the last moment. Else it is released when it comes."""
        with self._turn:
            self._given_up = not self.over.is_set()
            return self._given_up
