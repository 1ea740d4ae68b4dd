"""What a change log asks of the place it lies in.

Names are relative to the log (`rows/0/head.json`); `path` makes them what people see and tasks open. A file appears whole or
not at all.

Every request has three outcomes: it is done; it is not to be had now (LogUnavailable: nothing is known to be broken, and a change may have
been made all the same, so that it has to be one that can be made again); it fails for good, with an error that names what is wrong
(LogRefused, DiskLow, SegmentGone, LogCorrupt). See `outcomes`. Here nothing waits or tries again: that is for the caller, see `patience`.
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
"""Stands for one version of a file."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a folder."""

    name: str
    size: int
    modified: float  # Unix seconds


class Draft(ABC):
    """A file that is being written and does not exist for anybody else yet."""

    sink: Any  # pa.NativeFile
    place = ""  # where it is written, if that is not where it will be

    @abstractmethod
    def seal(self) -> None:
        """Nothing more will be written; what was is safe from a crash of the machine, where the storage can do that."""

    @abstractmethod
    def publish(self, name: str) -> None:
        """Give the sealed file its name, at once and whole. Call `Storage.settle` of the folder afterwards."""

    @abstractmethod
    def discard(self) -> None:
        """Forget the file. Harmless after `publish`."""


class Storage(ABC):
    """The files of one log. Folders need no making. Every request may raise LogUnavailable, LogRefused or DiskLow."""

    location: str

    @property
    @abstractmethod
    def local(self) -> bool:
        """Can its files be mapped."""

    def path(self, name: str) -> str:
        """The path or URL of a file."""
        return f"{self.location}/{name}"

    def name(self, path: str) -> str:
        """The name within the log of a path that `path` made."""
        return path.removeprefix(f"{self.location}/")

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Files of a folder, in no order; none where there is no such folder."""

    def below(self, folder: str) -> list[str]:
        """All files below a folder, at any depth, as FOLDER/NAME from there, in no order. One request for many folders where the store
        can do that."""
        inner = self.subfolders(folder)
        found = [name for name in self.names(folder) if name not in inner]
        return found + [f"{one}/{name}" for one in inner for name in self.below(f"{folder}/{one}")]

    @abstractmethod
    def entries(self, folder: str) -> list[Entry]:
        """As `names`, with sizes and ages; files that vanish meanwhile are left out."""

    @abstractmethod
    def subfolders(self, folder: str) -> list[str]:
        """Folders in a folder."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """A small file; None where there is none."""

    @abstractmethod
    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Write a small file over the one before. `durable`: also safe from a crash of the machine when this returns."""

    @property
    def can_swap(self) -> bool:
        """Does `swap` work: it was tried out."""
        return False

    def versioned(self, name: str) -> tuple[bytes, Token] | None:
        """As `read`, with what `swap` needs to know of it. Only where `can_swap`."""
        raise NotImplementedError

    def swap(self, name: str, expected: Token | None, data: bytes) -> Token | None:
        """Write a small file over the version that `expected` stands for (None: there is no file), or not at all. Only where
        `can_swap`. Returns what the new version is known by; None where another version is there."""
        raise NotImplementedError

    @abstractmethod
    def draft(self, folder: str) -> Draft:
        """Begin a file of a folder."""

    @abstractmethod
    def settle(self, folder: str) -> None:
        """Published names of the folder are safe from a crash of the machine."""

    @abstractmethod
    def sync(self, name: str) -> None:
        """What a file says now, if it is there, is safe from a crash of the machine."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a file; harmless where there is none."""

    @abstractmethod
    def delete_folder(self, folder: str) -> None:
        """Remove a folder and all below it; harmless where there is none."""

    @abstractmethod
    def open(self, name: str) -> Any:
        """An `arrowfile.ArrowFile`. Raises SegmentGone or LogCorrupt."""

    @abstractmethod
    def size(self, name: str) -> int:
        """Bytes of a file. Raises SegmentGone."""

    @property
    def place(self) -> str:
        """Where there has to be room on a disk."""
        return self.location

    @abstractmethod
    def free_bytes(self) -> int | None:
        """Room left there; None where nobody can say."""


def temporary_name() -> str:
    """For a file that is being written. Processes of several hosts may write one folder, under the same process id."""
    return f".{os.getpid()}-{_ORIGIN}-{next(_counter)}.tmp"
