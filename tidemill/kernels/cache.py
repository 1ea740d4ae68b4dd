"""The folder of compiled kernels.

Numba notices a change of the file that holds a kernel, but not of the files that it imports, so it could load a stale kernel after an edit
of a helper. Therefore all kernels compile into one folder whose name is a hash of all their sources: after any edit every kernel is
compiled again, once. A kernel module calls `use_cache` before its first decorated function.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numba
from numba.core import event

from tidemill.errors import ConfigError

_OUTSIDE = ("records.py", "protocols/common/gotext.py", "protocols/common/printable_runes.txt")
"""Files outside this package whose constants kernels use."""

PLACE = "TIDEMILL_KERNEL_CACHE"
"""Environment variable with the folder of the caches."""

LOCATORS = "tidemill.kernels.archived.ArchivedSources,UserProvidedCacheLocator,ZipCacheLocator"
"""Where numba looks for a kernel's cache, if Tidemill lies in an archive."""

_log = logging.getLogger(__name__)


class Compiling(event.Listener):  # type: ignore[misc]
    """Says once that a process compiles kernels, because it does nothing else meanwhile. Kernels that are in the cache are not compiled.

    It is a warning: imports compile, also before a process has set up its log, and Python prints warnings even then.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._told = folder, False

    def on_start(self, event: Any) -> None:
        if not self._told:
            self._told = True
            _log.warning(
                "compiling kernels into %s, which takes a minute or two; it is done once for each version of Tidemill", self._folder
            )

    def on_end(self, event: Any) -> None:
        pass


def cache_root(environment: Mapping[str, str], home: Callable[[], Path]) -> Path:
    """Make the folder that holds the caches of all versions, and return it: the one that is named, else that of the user's caches, else
    one of the user's own in the folder for temporary files, for users without a writable home. Raises ConfigError.

    Kernels are machine code, so a folder in a place that everybody may write must belong to this user alone.
    """
    if named := environment.get(PLACE):
        folder = Path(named)
        if not _usable(folder):
            raise ConfigError(f"the folder of compiled kernels cannot be written: {folder}", hint=f"Let {PLACE} name one that can.")
        return folder
    with suppress(RuntimeError, KeyError):  # a user without a home
        folder = Path(environment.get("XDG_CACHE_HOME") or home() / ".cache") / "tidemill" / "kernels"
        if _usable(folder):
            return folder
    folder = Path(environment.get("TMPDIR") or "/tmp") / f"tidemill-kernels-{os.getuid()}"
    if not _usable(folder, private=True):
        raise ConfigError(
            f"no folder for compiled kernels can be written: neither that of your caches nor {folder}",
            hint=f"Let {PLACE} name a folder that only you can write.",
        )
    return folder


def _usable(folder: Path, *, private: bool = False) -> bool:
    """Whether files can be made in a folder; it is made if it is missing. `private`: and by this user alone."""
    try:
        folder.mkdir(mode=0o700 if private else 0o777, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return False
    if private and (found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o022):
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _modules(folder: Traversable, name: str) -> Iterator[str]:
    """The modules below a folder of the package, which may lie in an archive."""
    for one in folder.iterdir():
        if one.is_dir():
            yield from _modules(one, f"{name}/{one.name}")
        elif one.name.endswith(".py"):
            yield f"{name}/{one.name}"


@functools.cache
def use_cache() -> Path:
    """Make numba's cache the folder of the present kernels, and return it. Raises ConfigError."""
    package = files("tidemill")
    digest = hashlib.sha256()
    for name in sorted([*_modules(package.joinpath("kernels"), "kernels"), *_OUTSIDE]):
        digest.update(name.encode() + b"\0" + package.joinpath(name).read_bytes() + b"\0")
    folder = cache_root(os.environ, Path.home) / f"{numba.__version__}-{digest.hexdigest()[:16]}"
    numba.config.CACHE_DIR = str(folder)
    if not isinstance(package, Path):  # in an archive
        numba.config.CACHE_LOCATOR_CLASSES = LOCATORS
    event.register("numba:compile", Compiling(folder))
    return folder
