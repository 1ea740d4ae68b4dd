"""The last lines of the log, for the page: a ring that readers wait on. Lines come redacted, as they stand in the log.

`Ring` is fed by `tidemill.logs.listen`, from any thread. With --log-file the processes of a server write to the file themselves: then
`FileEnd` reads them there, as long as somebody looks.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from pathlib import Path

KEPT = 1000
LONGEST = 2000
"""Characters of a line that are kept."""
FIRST_READ = 128 << 10
MOST_READ = 1 << 20
"""Bytes of a file: at the first look, and at each other one. What lies between is left out."""


class Ring:
    """The last KEPT lines. A line has a number, which grows by one. Reading and waiting are for the event loop's thread."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT)
        self._last = 0
        self._lock = threading.Lock()
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._closed = False

    def add(self, text: str) -> None:
        """Keep the lines of a text. May be called in any thread."""
        lines = [line[:LONGEST] for line in text.splitlines()]
        with self._lock:
            self._lines.extend(lines)
            self._last += len(lines)
            waiting = [*self._waiting.items()]
        for event, loop in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    def after(self, number: int) -> tuple[int, list[str]]:
        """Return the number of the newest line, and the lines behind the one with this number. A number that was never given, as before
        a restart: all of them."""
        with self._lock:
            behind = self._last - number if 0 <= number <= self._last else KEPT
            count = min(behind, len(self._lines))
            return self._last, [*self._lines][len(self._lines) - count :]

    async def wait(self, number: int, seconds: float) -> None:
        """Return when there is a line behind this number, after some seconds, or when the ring is closed."""
        event = asyncio.Event()
        with self._lock:
            if self._closed or number != self._last:
                return
            self._waiting[event] = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            with self._lock:
                self._waiting.pop(event, None)

    def close(self) -> None:
        """Let nobody wait any more: the server ends."""
        with self._lock:
            self._closed = True
            waiting = [*self._waiting.items()]
        for event, loop in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)


class FileEnd:
    """Follows the end of a file that other processes append to, and that may be moved away (rotated)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1  # its inode
        self._at = 0
        self._rest = b""
        self._within = False
        """What is read next begins within a line, which is left out."""

    def read(self) -> str:
        """Return the whole lines that were written since the last call; at first, those at its end. Does IO. A file that cannot be read
        has none."""
        try:
            with open(self._path, "rb") as file:
                found = os.fstat(file.fileno())
                if found.st_ino != self._file or found.st_size < self._at:
                    start = max(0, found.st_size - FIRST_READ) if self._file == -1 else 0
                    self._file, self._at, self._rest, self._within = found.st_ino, start, b"", start > 0
                if found.st_size - self._at > MOST_READ:
                    self._at, self._rest, self._within = found.st_size - MOST_READ, b"", True
                file.seek(self._at)
                data = file.read(MOST_READ)
        except OSError:
            return ""
        self._at += len(data)
        whole, mark, rest = (self._rest + data).rpartition(b"\n")
        self._rest = rest[:LONGEST]
        if self._within and mark:
            self._within, whole = False, whole.partition(b"\n")[2]
        return (whole + mark).decode(errors="replace").lstrip("\n") if mark else ""
