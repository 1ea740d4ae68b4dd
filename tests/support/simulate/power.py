"""A folder that loses what was not synced when the power is lost: data that no fsync of their file has written, and names that no fsync of
their folder has.

The worst that POSIX allows: a file is as at its last fsync (empty if there was none), a folder has the names of its last fsync. What other
programs write there (`of_others`) they sync themselves, where no test sees it: it stays.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from stat import S_ISDIR, S_ISREG

import pytest

Inode = int


class PowerSupply:
    """Follows what is synced below a folder. One for each run; `install` lets it see each fsync of this process."""

    def __init__(self, root: Path, of_others: Callable[[Path], bool] = lambda _: False) -> None:
        """`of_others`: says it of a path below the root."""
        self._root, self._kept, self._of_others = root, root.with_name(f"{root.name}.kept"), of_others
        self._data: dict[Inode, bytes] = {}
        self._names: dict[Inode, dict[str, Inode]] = {}
        self._folders: dict[Inode, int] = {}  # open: their inodes are not used again
        self._on = True
        root.mkdir(parents=True, exist_ok=True)
        self._kept.mkdir()
        self._all_is_durable()

    def close(self) -> None:
        """Forget everything."""
        for handle in self._folders.values():
            os.close(handle)
        self._folders.clear()
        shutil.rmtree(self._kept)

    def synced(self, handle: int) -> None:
        """Take note of an fsync."""
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if self._on and path.is_relative_to(self._root):
            self._keep(path)

    def go_off(self) -> None:
        """What is synced from now on is written to no disk."""
        for path in (self._root, *self._root.rglob("*")):
            if path.is_dir():
                self._keep_others(path)
        self._on = False

    def _keep_others(self, folder: Path) -> None:
        names = self._names.setdefault(self._hold(folder), {})
        place, there = folder.relative_to(self._root), {path.name: path for path in folder.iterdir()}
        for name in names.keys() | there.keys():
            if not self._of_others(place / name):
                continue
            if name not in there:
                del names[name]
                continue
            names[name] = self._hold(there[name])
            if there[name].is_file():
                self._data[names[name]] = there[name].read_bytes()

    def come_back(self) -> None:
        """Leave what was durable."""
        tree = self._root.with_name(f"{self._root.name}.tree")
        tree.mkdir()
        self._build(tree, self._root.stat().st_ino, {})
        for path in [*self._root.iterdir()]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in [*tree.iterdir()]:
            path.rename(self._root / path.name)
        tree.rmdir()
        self._on = True
        self._all_is_durable()

    def _build(self, folder: Path, inode: Inode, made: dict[Inode, Path]) -> None:
        for name, child in self._names.get(inode, {}).items():
            place = folder / name
            if child in self._folders:
                place.mkdir()
                self._build(place, child, made)
            elif child in made:
                os.link(made[child], place)
            else:
                place.write_bytes(self._data.get(child, b""))
                made[child] = place

    def _all_is_durable(self) -> None:
        self._keep(self._root)
        for path in self._root.rglob("*"):
            self._keep(path)

    def _keep(self, path: Path) -> None:
        try:
            status = path.stat()
        except FileNotFoundError:  # it was unlinked while it was open: nobody will see it
            return
        if S_ISREG(status.st_mode):
            self._hold(path)
            self._data[status.st_ino] = path.read_bytes()
        elif S_ISDIR(status.st_mode):
            self._hold(path)
            self._names[status.st_ino] = {child.name: self._hold(child) for child in path.iterdir()}

    def _hold(self, path: Path) -> Inode:
        """Keep an inode's number from being used again, and return it."""
        inode = path.stat().st_ino
        if path.is_dir():
            if inode not in self._folders:
                self._folders[inode] = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        elif not (self._kept / str(inode)).exists():
            os.link(path, self._kept / str(inode))
        return inode


class Supplies:
    """The supply of the run under way."""

    def __init__(self, of_others: Callable[[Path], bool] = lambda _: False) -> None:
        self._of_others = of_others
        self.now: PowerSupply | None = None

    def start(self, root: Path) -> PowerSupply:
        self.stop()
        self.now = PowerSupply(root, self._of_others)
        return self.now

    def stop(self) -> None:
        if self.now is not None:
            self.now.close()
        self.now = None

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Let the supply see what is synced. Nothing else is: the disk of a test has no part in it."""

        def fsync(handle: int | object) -> None:
            number = handle if isinstance(handle, int) else handle.fileno()  # type: ignore[attr-defined]
            if self.now is not None:
                self.now.synced(number)

        patch.setattr(os, "fsync", fsync)
        patch.setattr(os, "fdatasync", fsync)
