"""The cache of kernels whose sources lie in an archive, as `spark.submit.pyFiles` sends them.

Numba's own cache of such kernels goes by the archive's path, which is another one in each Spark application. The folder of compiled kernels
is named by their sources, so their place inside the package is enough.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numba
from numba.core.caching import _CacheLocator

_PACKAGE = f"{os.sep}tidemill{os.sep}"


class ArchivedSources(_CacheLocator):  # type: ignore[misc]
    """Numba's locator of one kernel."""

    def __init__(self, function: Callable[..., Any], inside: str) -> None:
        self._line = function.__code__.co_firstlineno
        self._folder = str(Path(numba.config.CACHE_DIR, "archived", inside).with_suffix(""))

    def get_cache_path(self) -> str:
        return self._folder

    def get_source_stamp(self) -> str:
        """The same for all: other sources have another folder."""
        return ""

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> Self | None:
        """None: the source is a file."""
        inside = file.rpartition(_PACKAGE)[2]
        return None if Path(file).exists() or inside == file else cls(function, inside)
