"""A sink's store whose every request passes a gate first: a test may stop its driver there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tidemill.changelog.storage.base import Token
from tidemill.sinks.storage.store import Store

Gate = Callable[[str], None]
"""Called before each effect, with a name such as `swap metadata`. What it raises comes out of the store."""


class GatedStore(Store):
    """See the module. Files of a move pass the gate one by one."""

    def __init__(self, inner: Store, gate: Gate) -> None:
        self._inner, self._gate = inner, gate

    def __str__(self) -> str:
        return str(self._inner)

    def local_path(self, name: str) -> Path | None:
        return self._inner.local_path(name)

    def upload(self, path: Path, name: str) -> None:
        self._gate(f"upload {name}")
        self._inner.upload(path, name)

    def read(self, name: str) -> bytes | None:
        self._gate(f"read {name}")
        return self._inner.read(name)

    def versioned(self, name: str) -> tuple[bytes, Token] | None:
        self._gate(f"read {name}")
        return self._inner.versioned(name)

    def swap(self, name: str, expected: Token | None, data: bytes) -> Token | None:
        self._gate(f"swap {name}")
        return self._inner.swap(name, expected, data)

    def stage(self, name: str, data: bytes) -> None:
        self._gate(f"stage {name}")
        self._inner.stage(name, data)

    def move(self, moves: Iterable[tuple[str, str]]) -> None:
        for old, new in moves:
            self._gate(f"move {new}")
            self._inner.move([(old, new)])

    def names(self, folder: str) -> list[str]:
        self._gate(f"list {folder}")
        return self._inner.names(folder)

    def folders(self, folder: str) -> list[str]:
        self._gate(f"list {folder}")
        return self._inner.folders(folder)

    def walk(self) -> Iterator[str]:
        self._gate("list everything")
        return self._inner.walk()

    def delete(self, name: str) -> None:
        self._gate(f"delete {name}")
        self._inner.delete(name)

    def make_folder(self, folder: str) -> None:
        self._gate(f"make {folder}")
        self._inner.make_folder(folder)

    def clear(self, folder: str) -> None:
        self._gate(f"clear {folder}")
        self._inner.clear(folder)
