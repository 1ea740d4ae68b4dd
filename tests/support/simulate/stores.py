"""A sink's store whose every request passes a gate: a test may stop its driver before or behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from tidemill.changelog.storage.state_file import StateFile
from tidemill.sinks.storage.store import Store

T = TypeVar("T")


class Gate(Protocol):
    """Takes effects: `effect` names one, such as `swap metadata`, and `act` is it."""

    def __call__(self, effect: str, act: Callable[[], T]) -> T:
        """Act and return what it gives, or raise instead, or act and raise."""


class GatedStore(Store):
    """See the module. Files of a move pass the gate one by one."""

    def __init__(self, inner: Store, gate: Gate) -> None:
        self._inner, self._gate = inner, gate

    def __str__(self) -> str:
        return str(self._inner)

    def local_path(self, name: str) -> Path | None:
        return self._inner.local_path(name)

    def upload(self, path: Path, name: str) -> None:
        self._gate(f"upload {name}", lambda: self._inner.upload(path, name))

    def read(self, name: str) -> bytes | None:
        return self._gate(f"read {name}", lambda: self._inner.read(name))

    def shared_file(self, name: str) -> StateFile:
        made = self._inner.shared_file(name)
        look, put = made._look, made._put
        made._look = lambda: self._gate(f"read {name}", look)  # type: ignore[method-assign]
        made._put = lambda *given: self._gate(f"swap {name}", partial(put, *given))  # type: ignore[method-assign]
        return made

    def stage(self, name: str, data: bytes) -> None:
        self._gate(f"stage {name}", lambda: self._inner.stage(name, data))

    def settle(self, names: Iterable[str]) -> None:
        self._gate("sync staged files", lambda: self._inner.settle(names))

    def move(self, moves: Iterable[tuple[str, str]]) -> None:
        for old, new in moves:
            self._gate(f"move {new}", partial(self._inner.move, [(old, new)]))

    def names(self, folder: str) -> list[str]:
        return self._gate(f"list {folder}", lambda: self._inner.names(folder))

    def folders(self, folder: str) -> list[str]:
        return self._gate(f"list {folder}", lambda: self._inner.folders(folder))

    def walk(self) -> Iterator[str]:
        return self._gate("list everything", lambda: self._inner.walk())

    def delete(self, name: str) -> None:
        self._gate(f"delete {name}", lambda: self._inner.delete(name))

    def make_folder(self, folder: str) -> None:
        self._gate(f"make {folder}", lambda: self._inner.make_folder(folder))

    def clear(self, folder: str) -> None:
        self._gate(f"clear {folder}", lambda: self._inner.clear(folder))
