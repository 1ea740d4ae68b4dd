"""Tells when a file is moved into one of some folders, by Linux's inotify(7). That is how files are replaced. Network file systems do not
tell of what other machines do."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
from collections.abc import Iterator
from types import TracebackType
from typing import Self

_IN_MOVED_TO = 0x80
_NONBLOCK, _CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
_BUFFER = 64 * 1024


class FileEvents:
    """Watches folders for files that are moved in."""

    def __init__(self) -> None:
        """Raises OSError if the system has no watch left."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._checked(self._libc.inotify_init1(_NONBLOCK | _CLOEXEC))
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def watch(self, folder: str | os.PathLike[str]) -> None:
        """Watch a folder that is there. Raises OSError."""
        self._checked(self._libc.inotify_add_watch(self._fd, os.fsencode(folder), _IN_MOVED_TO))

    def wait(self, name: str, seconds: float) -> bool:
        """Wait until a file was moved in. Return whether one of this name was, in any of the folders."""
        return bool(self._poll.poll(max(0, round(1000 * seconds)))) and name in {*self._moved_in()}

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _moved_in(self) -> Iterator[str]:
        """The names of all files of which the system has told."""
        try:
            while found := os.read(self._fd, _BUFFER):
                at = 0
                while at < len(found):
                    *_, length = _EVENT.unpack_from(found, at)
                    at += _EVENT.size
                    yield os.fsdecode(found[at : at + length].rstrip(b"\0"))
                    at += length
        except BlockingIOError:
            return

    def _checked(self, result: int) -> int:
        if result < 0:
            number = ctypes.get_errno() or errno.EIO
            raise OSError(number, os.strerror(number))
        return result
