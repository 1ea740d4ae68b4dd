"""Where compiled kernels are kept: object code in files whose names say what it was compiled from and for.

A file is found under the hash of the sources, of LLVM's version and of the processor, so it serves every installation that has the same,
wherever that lies. Folders that are looked into: that of the package (`kernels/compiled`, where a wheel or an archive may have them), then
one of this user or machine. Only the second is written to. Where none can be written, kernels are compiled in each process.
"""

from __future__ import annotations

import fcntl
import functools
import logging
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from tidemill.errors import ConfigError

PLACE = "TIDEMILL_KERNEL_CACHE"
"""Environment variable with the folder of compiled kernels."""

_log = logging.getLogger(__name__)


def cache_root(environment: Mapping[str, str], home: Callable[[], Path]) -> Path:
    """Return the folder of compiled kernels, and make it: the one that is named, else that of the user's caches, else one of the user's own
    in the folder for temporary files, for users without a writable home. Raises ConfigError.

    Kernels are machine code, so a folder in a place that everybody may write must belong to this user alone. One that is named may be
    read-only, if it is there.
    """
    if named := environment.get(PLACE):
        folder = Path(named)
        if not _usable(folder) and not folder.is_dir():
            raise ConfigError(f"the folder of compiled kernels cannot be made: {folder}", hint=f"Let {PLACE} name one that can.")
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


class Cache:
    """Files with object code. `shipped` is only read. `folder` is None where there is none; `why` says so."""

    def __init__(self, shipped: Traversable | None, folder: Path | None, why: str = "") -> None:
        self.folder, self.why, self._shipped, self._told = folder, why, shipped, False

    def get(self, name: str) -> bytes | None:
        """The object code of this name, if it is kept."""
        for place in (self._shipped, self.folder):
            if place is not None:
                with suppress(OSError):
                    return place.joinpath(name).read_bytes()
        return None

    def put(self, name: str, code: bytes) -> None:
        """Keep object code, whole or not at all. It goes on where it cannot: the next process compiles again."""
        if self.folder is None:
            return
        try:
            made = self.folder / f".{name}-{os.getpid()}"
            made.write_bytes(code)
            made.replace(self.folder / name)
        except OSError as error:
            _log.warning("a compiled kernel cannot be kept in %s: %s", self.folder, error)

    @contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Let one process at a time compile what has this name; the others find it compiled."""
        with ExitStack() as stack:
            with suppress(OSError):  # else it is compiled twice, which harms nobody
                if self.folder is not None and os.access(self.folder, os.W_OK):
                    lock = stack.enter_context(open(self.folder / f".{name}.lock", "w", encoding="utf-8"))
                    fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def tell(self) -> None:
        """Say once that this process compiles kernels, because it does nothing else meanwhile.

        It is a warning: imports compile, also before a process has set up its log, and Python prints warnings even then.
        """
        if self._told:
            return
        self._told = True
        if self.folder is not None and os.access(self.folder, os.W_OK | os.X_OK):
            _log.warning("compiling kernels into %s, which takes some seconds; it is done once for each version of Tidemill", self.folder)
        else:
            why = self.why or f"{self.folder} cannot be written"
            _log.warning("compiling kernels, which takes some seconds in each process: %s (%s names a folder)", why, PLACE)


@functools.cache
def cache() -> Cache:
    """The cache of this process."""
    shipped = files("tidemill").joinpath("kernels", "compiled")
    try:
        return Cache(shipped, cache_root(os.environ, Path.home))
    except ConfigError as error:
        if os.environ.get(PLACE):
            raise
        return Cache(shipped, None, error.message)
