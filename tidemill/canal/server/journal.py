"""STORE/clients/journal, in a folder: the clients' records that changed since their files were written, one JSON a line, in order.

Many clients acknowledge often, and a file that is replaced durably costs a disk two writes of metadata. So what all clients have changed is
appended with one sync. From time to time the journal becomes journal.old and a new one begins; then the files are written, and the old one
goes. Whoever reads takes the files, then the lines of the old journal, then those of the new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

from tidemill import statefile
from tidemill.canal.conversation.subscriber import Key, Record
from tidemill.changelog.storage.durable import make_folder
from tidemill.changelog.storage.outcomes import storage_errors
from tidemill.errors import LogCorrupt

JOURNAL, OLD = "journal", ".old"
JOURNAL_FILE = statefile.Kind(LogCorrupt, "Restore it from a copy, or remove it: then clients go on where their files beside it say.")
FULL_BYTES = 4 << 20
"""A journal of so many bytes is replaced by a new one."""


def line_of(key: Key, record: Record | None) -> bytes:
    """A line; None: the client was forgotten."""
    fields = {"destination": key.destination, "client": key.client}
    fields |= json.loads(record.to_json()) if record is not None else {"forgotten": True}
    return (json.dumps(fields) + "\n").encode()


def parse_journal(data: bytes, name: str) -> Iterator[tuple[Key, Record | None]]:
    """What the lines say. A last line without its end was never acknowledged to anybody. Raises LogCorrupt."""
    *lines, _ = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        where = f"{name}, line {number}"
        fields = statefile.read(line, where, JOURNAL_FILE)
        key = Key(fields.text("destination"), fields.integer("client", -0x8000, 0x7FFF))
        yield key, None if fields.flag("forgotten", default=False) else Record.from_json(line, where)


class Journal:
    """The journal's writer. Lines that come while others are written are written together. For one event loop."""

    def __init__(self, path: str, held: Callable[[], AbstractContextManager[None]]) -> None:
        """`held`: the right to write, which is looked at for each write. Raises LogFenced."""
        self._path, self._held = path, held
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="canal-journal")
        self._handle = -1
        self._size = 0
        self._lines: list[bytes] = []
        self._writing: asyncio.Future[None] | None = None
        self._next: asyncio.Future[None] | None = None

    @property
    def full(self) -> bool:
        """Whether a new one should begin."""
        return self._size >= FULL_BYTES

    async def append(self, line: bytes) -> None:
        """Write a line durably. Raises LogUnavailable, LogRefused, DiskLow; then the line is not written."""
        self._lines.append(line)
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write())
            await asyncio.shield(self._writing)
            return
        if self._next is None:
            self._next = asyncio.ensure_future(self._write_after(self._writing))
        await asyncio.shield(self._next)

    async def _write_after(self, running: asyncio.Future[None]) -> None:
        await asyncio.wait([running])
        self._writing, self._next = self._next, None
        await self._write()

    async def _write(self) -> None:
        mine, lines, self._lines = self._writing, self._lines, []
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._append, b"".join(lines))
        finally:
            if self._writing is mine and self._next is None:
                self._writing = None

    def _append(self, data: bytes) -> None:
        with self._held(), storage_errors(self._path, writing=True):
            if self._handle < 0:
                make_folder(Path(self._path).parent)
                self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                self._size = os.lseek(self._handle, 0, os.SEEK_END)
                sync_folder(str(Path(self._path).parent))
            try:
                done = 0
                while done < len(data):
                    done += os.pwrite(self._handle, data[done:], self._size + done)
                os.fdatasync(self._handle)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._handle, self._size)
                raise
            self._size += len(data)

    async def rotate(self) -> None:
        """Begin a new journal, unless there is an old one still. Raises the storage's errors."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._rotate)

    def _rotate(self) -> None:
        with self._held(), storage_errors(self._path, writing=True):
            old = Path(self._path + OLD)
            if not old.exists() and Path(self._path).exists():
                Path(self._path).rename(old)
                self._shut()

    async def drop_old(self) -> None:
        """The files have what the old journal says. Raises the storage's errors."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._drop_old)

    def _drop_old(self) -> None:
        with self._held(), storage_errors(self._path, writing=True):
            Path(self._path + OLD).unlink(missing_ok=True)

    def _shut(self) -> None:
        handle, self._handle, self._size = self._handle, -1, 0
        if handle >= 0:
            os.close(handle)

    def close(self) -> None:
        """End the thread, and close the file."""
        self._thread.shutdown(wait=True)
        self._shut()


def sync_folder(path: str) -> None:
    """Make a folder's names survive a crash of the machine."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
