"""A machine that loses its power at a chosen call to the file system: what was not synced is gone.

Of a file only what was synced is there afterwards; one that never was is empty. Of a folder only the names are there that were synced.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CALLS = ("open", "write", "fsync", "fdatasync", "replace", "rename", "mkdir")


class PowerLost(BaseException):
    """The machine is off."""


class Machine:
    """Watches a folder. What lies there at first is synced."""

    def __init__(self, root: Path, dies_at: int | None = None) -> None:
        """`dies_at`: the call that is not made any more, from 0 on; None: it goes on forever."""
        self.root, self.dies_at, self.calls = root, dies_at, 0
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        for where, _, names in os.walk(root):
            self._synced(where)
            for name in names:
                self._synced(f"{where}/{name}")

    def _synced(self, path: str) -> None:
        found = Path(path).stat()
        if stat.S_ISDIR(found.st_mode):
            self._names[found.st_ino] = {one.name: one.lstat().st_ino for one in Path(path).iterdir()}
        elif stat.S_ISREG(found.st_mode):
            self._contents[found.st_ino] = Path(path).read_bytes()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the calls of a block; at the chosen one it raises PowerLost, and so does each later one."""
        with pytest.MonkeyPatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, self._counted(name, getattr(os, name)))
            yield

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **given: Any) -> Any:
            if name != "open" or (len(args) > 1 and args[1] & os.O_CREAT):
                if self.dies_at is not None and self.calls >= self.dies_at:
                    raise PowerLost(f"call {self.calls}: {name}")
                self.calls += 1
            result = call(*args, **given)
            if name == "open" and len(args) > 1 and args[1] & os.O_TRUNC:
                self._contents.pop(os.fstat(result).st_ino, None)
            if name in ("fsync", "fdatasync"):
                self._synced(str(Path(f"/proc/self/fd/{args[0]}").readlink()))
            return result

        return counted

    def starts_again(self) -> None:
        """Make the folder as it is after the power was lost."""
        root = self.root.stat().st_ino
        after = self.root.with_name(f"{self.root.name}.after")
        self._restore(root, after)
        shutil.rmtree(self.root)
        after.rename(self.root)

    def _restore(self, inode: int, to: Path) -> None:
        kinds = {path.lstat().st_ino: path for path in self.root.rglob("*")}
        to.mkdir()
        for name, one in self._names.get(inode, {}).items():
            if one in self._names or (one in kinds and kinds[one].is_dir()):
                self._restore(one, to / name)
            elif one in self._contents or one in kinds:
                (to / name).write_bytes(self._contents.get(one, b""))
