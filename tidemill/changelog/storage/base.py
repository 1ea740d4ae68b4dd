"""The storage operations that a change log needs.

Names are relative to the log (`rows/0/head.json`); `path` makes them the paths or URLs that messages show and tasks open. A file appears
whole or not at all.

Every request has three outcomes. It is done. Or it cannot be done now (LogUnavailable): nothing is known to be broken; a change may have
been made all the same, so it must be safe to repeat. Or it fails for good, with an error that names the cause (LogRefused, DiskLow,
SegmentGone, LogCorrupt). See `outcomes`. Nothing here waits or retries: that is for the caller, see `retry`.
"""

from __future__ import annotations

import itertools
import os
import secrets
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

_ORIGIN = secrets.token_hex(4)
_counter = itertools.count()

Token = str
"""Identifies one version of a file."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a folder."""

    name: str
    size: int
    modified: float  # Unix seconds


class Draft(ABC):
    """A file that is being written; nobody else can see it yet."""

    sink: Any  # pa.NativeFile
    place = ""  # where it is written, if not where it will be published

    @abstractmethod
    def seal(self) -> None:
        """Finish writing. Where the storage can do that, the content then survives a crash of the machine."""

    @abstractmethod
    def publish(self, name: str) -> None:
        """Publish the sealed file under its name, atomically. Call `Storage.settle` of the folder afterwards."""

    @abstractmethod
    def discard(self) -> None:
        """Discard the file. No effect after `publish`."""


class Storage(ABC):
    """The files of one log. Folders are created as needed. Every request may raise LogUnavailable, LogRefused or DiskLow."""

    location: str

    @property
    @abstractmethod
    def local(self) -> bool:
        """Whether its files can be mapped."""

    def path(self, name: str) -> str:
        """Return the path or URL of a file."""
        return f"{self.location}/{name}"

    def name(self, path: str) -> str:
        """Return the name within the log of a path made by `path`."""
        return path.removeprefix(f"{self.location}/")

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Return the files of a folder, in no order; none if there is no such folder."""

    def below(self, folder: str) -> list[str]:
        """Return all files below a folder, at any depth, as FOLDER/NAME relative to it, in no order. One request covers many folders if the
        storage can do that."""
        inner = self.subfolders(folder)
        found = [name for name in self.names(folder) if name not in inner]
        return found + [f"{one}/{name}" for one in inner for name in self.below(f"{folder}/{one}")]

    @abstractmethod
    def entries(self, folder: str) -> list[Entry]:
        """Like `names`, with sizes and ages. Files that vanish meanwhile are left out."""

    @abstractmethod
    def subfolders(self, folder: str) -> list[str]:
        """Return the folders in a folder."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Return the content of a small file; None if there is none."""

    @abstractmethod
    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Write a small file atomically, over the old one. `durable`: it survives a crash of the machine when this returns."""

    @property
    def can_swap(self) -> bool:
        """Whether `swap` works here; it is tried out."""
        return False

    def versioned(self, name: str) -> tuple[bytes, Token] | None:
        """Like `read`, with the token that `swap` needs. Only if `can_swap`."""
        raise NotImplementedError

    def swap(self, name: str, expected: Token | None, data: bytes) -> Token | None:
        """Write a small file over the version `expected` (None: there must be no file), or not at all. Only if `can_swap`. Returns the
        token of the new version; None if another version is there."""
        raise NotImplementedError

    @abstractmethod
    def draft(self, folder: str) -> Draft:
        """Begin a file of a folder."""

    @abstractmethod
    def settle(self, folder: str) -> None:
        """Make the folder's published names survive a crash of the machine."""

    @abstractmethod
    def sync(self, name: str) -> None:
        """Make the current content of a file, if it exists, survive a crash of the machine."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a file. It is not an error if there is none."""

    @abstractmethod
    def delete_folder(self, folder: str) -> None:
        """Remove a folder and all below it. It is not an error if there is none."""

    @abstractmethod
    def open(self, name: str) -> Any:
        """Open a file as an `arrowfile.ArrowFile`. Raises SegmentGone or LogCorrupt."""

    @abstractmethod
    def ranges(self, name: str) -> Any:
        """Open a file of any format, for reads of ranges: a pa.NativeFile, mapped if that is safe. Raises SegmentGone or LogCorrupt."""

    @abstractmethod
    def size(self, name: str) -> int:
        """Return the bytes of a file. Raises SegmentGone."""

    @property
    def place(self) -> str:
        """The place whose disk space counts."""
        return self.location

    @abstractmethod
    def free_bytes(self) -> int | None:
        """Return the free disk space there; None if it is unknown."""


def temporary_name() -> str:
    """Return a name for a file that is being written. Processes of several hosts may write one folder, under the same process id."""
    return f".{os.getpid()}-{_ORIGIN}-{next(_counter)}.tmp"
