"""File operations of the value log, watched: where a test lets a kill or a full disk come."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


class Watched:
    """The module os as the value log sees it: `before` is called ahead of each operation that changes files."""

    def __init__(self, before: Callable[[str, tuple[Any, ...]], None]) -> None:
        self._before = before

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if name not in ("write", "fdatasync", "fsync", "ftruncate", "open"):
            return found

        def call(*args: Any) -> Any:
            self._before(name, args)
            return found(*args)

        return call
