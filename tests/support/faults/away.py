"""A folder whose file system fails for a while: calls of this process on it raise an OSError, as with a mount whose server is away."""

from __future__ import annotations

import builtins
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

_BY_PATH = ("open", "listdir", "scandir", "stat", "mkdir", "unlink", "rename", "replace", "rmdir")
_BY_HANDLE = ("fsync", "fdatasync")


class Mount:
    """Fails calls below `folder`. Set `number` to the error number of the failures, or to None to let calls succeed."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = str(folder)
        self.number: int | None = None
        self.failed = 0
        self.spared: Callable[[str], bool] = lambda path: False
        """Let calls with these paths succeed all the same."""
        for name in _BY_PATH:
            monkeypatch.setattr(os, name, self._by_path(getattr(os, name)))
        for name in _BY_HANDLE:
            monkeypatch.setattr(os, name, self._by_handle(getattr(os, name)))
        monkeypatch.setattr(builtins, "open", self._by_path(builtins.open))
        monkeypatch.setattr(pa, "OSFile", self._by_path(pa.OSFile))
        monkeypatch.setattr(pa, "memory_map", self._by_path(pa.memory_map))
        monkeypatch.setattr(shutil, "disk_usage", self._by_path(shutil.disk_usage))

    def _by_path(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def checked(path: Any, *arguments: Any, **more: Any) -> Any:
            if self.number is not None:
                self._check(path)
            return call(path, *arguments, **more)

        return checked

    def _by_handle(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def checked(handle: int) -> Any:
            if self.number is not None:
                self._check(Path(f"/proc/self/fd/{handle}").readlink())
            return call(handle)

        return checked

    def _check(self, path: Any) -> None:
        text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
        if (text == self._folder or text.startswith(self._folder + "/")) and not self.spared(text):
            number = self.number
            assert number is not None
            self.failed += 1
            raise OSError(number, os.strerror(number), text)
