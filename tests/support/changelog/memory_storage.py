"""An object store in memory for logs, whose requests can be observed, blocked, lost and delayed.

A request goes through `gate` before it does anything: what the gate raises ends it, and while the gate blocks, the request is under way.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tidemill.changelog.files.arrowfile import ArrowFile
from tidemill.changelog.storage.base import Draft, Entry, Storage, Token
from tidemill.changelog.storage.conditional import Outcome, swap
from tidemill.changelog.storage.outcomes import gone

Gate = Callable[[str, str], None]
"""Called with a request and the name of its file."""


def let_through(what: str, name: str) -> None:
    """A gate that lets every request through."""


class Bucket:
    """The objects. Several storages may look at one."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.modified: dict[str, int] = {}
        self._clock = itertools.count()

    def put(self, name: str, data: bytes) -> Token:
        self.content[name] = data
        self.modified[name] = next(self._clock)
        return self.token(name)

    def token(self, name: str) -> Token:
        """A token of the content, as S3's ETag."""
        return hashlib.md5(self.content[name], usedforsecurity=False).hexdigest()


class MemoryObjects:
    """Conditional requests. `after` is called when one has been done: what it returns is the answer instead."""

    def __init__(
        self, bucket: Bucket, gate: Gate = let_through, after: Callable[[str, str], Outcome | None] = lambda what, name: None
    ) -> None:
        self.bucket, self.gate, self.after = bucket, gate, after

    def get(self, name: str) -> tuple[bytes, Token] | None:
        self.gate("get", name)
        data = self.bucket.content.get(name)
        return None if data is None else (data, self.bucket.token(name))

    def put(self, name: str, data: bytes, expected: Token | None) -> Token | Outcome:
        self.gate("swap", name)
        there = self.bucket.token(name) if name in self.bucket.content else None
        outcome: Token | Outcome = self.bucket.put(name, data) if there == expected else Outcome.REFUSED
        return self.after("swap", name) or outcome

    def create(self, name: str, path: str) -> bool:
        raise AssertionError("files are put by the storage")


class MemoryStorage(Storage):
    """A log in a bucket, as one writer or reader sees it."""

    location = "memory://bucket/log"

    def __init__(self, bucket: Bucket, gate: Gate = let_through) -> None:
        self.bucket, self.gate = bucket, gate
        self.objects = MemoryObjects(bucket, gate)

    @property
    def local(self) -> bool:
        return False

    @property
    def can_swap(self) -> bool:
        return True

    def versioned(self, name: str) -> tuple[bytes, Token] | None:
        return self.objects.get(name)

    def swap(self, name: str, expected: Token | None, data: bytes) -> Token | None:
        return swap(self.objects, name, expected, data)

    def names(self, folder: str) -> list[str]:
        self.gate("list", folder)
        prefix = f"{folder}/" if folder else ""
        return [n.removeprefix(prefix) for n in self.bucket.content if n.startswith(prefix) and "/" not in n.removeprefix(prefix)]

    def below(self, folder: str) -> list[str]:
        self.gate("list", folder)
        return [n.removeprefix(f"{folder}/") for n in self.bucket.content if n.startswith(f"{folder}/")]

    def entries(self, folder: str) -> list[Entry]:
        prefix = f"{folder}/" if folder else ""
        return [Entry(n, len(self.bucket.content[prefix + n]), self.bucket.modified[prefix + n]) for n in self.names(folder)]

    def subfolders(self, folder: str) -> list[str]:
        self.gate("list", folder)
        prefix = f"{folder}/" if folder else ""
        return sorted(
            {n.removeprefix(prefix).partition("/")[0] for n in self.bucket.content if n.startswith(prefix) and "/" in n[len(prefix) :]}
        )

    def read(self, name: str) -> bytes | None:
        self.gate("get", name)
        return self.bucket.content.get(name)

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        self.gate("put", name)
        self.bucket.put(name, data)

    def draft(self, folder: str) -> Draft:
        return _Draft(self, folder)

    def settle(self, folder: str) -> None:
        pass

    def sync(self, name: str) -> None:
        pass

    def delete(self, name: str) -> None:
        self.gate("delete", name)
        self.bucket.content.pop(name, None)

    def delete_folder(self, folder: str) -> None:
        for name in [n for n in self.bucket.content if n.startswith(f"{folder}/")]:
            self.delete(name)

    def open(self, name: str) -> Any:
        return ArrowFile(self.ranges(name), self.path(name))

    def ranges(self, name: str) -> Any:
        self.gate("get", name)
        data = self.bucket.content.get(name)
        if data is None:
            raise gone(self.path(name))
        return pa.BufferReader(data)

    def size(self, name: str) -> int:
        self.gate("get", name)
        data = self.bucket.content.get(name)
        if data is None:
            raise gone(self.path(name))
        return len(data)

    def free_bytes(self) -> int | None:
        return None


class _Draft(Draft):
    def __init__(self, storage: MemoryStorage, folder: str) -> None:
        self._storage, self._folder = storage, folder
        self.sink = pa.BufferOutputStream()
        self._data = b""

    def seal(self) -> None:
        self._data = self.sink.getvalue().to_pybytes()

    def publish(self, name: str) -> None:
        """A file that exists is not replaced, as on S3."""
        self._storage.gate("create", f"{self._folder}/{name}")
        if f"{self._folder}/{name}" not in self._storage.bucket.content:
            self._storage.bucket.put(f"{self._folder}/{name}", self._data)

    def discard(self) -> None:
        pass
