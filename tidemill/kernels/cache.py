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
from pathlib import Path
from typing import Any

import numba
from numba.core import event

from tidemill import records
from tidemill.protocols.common import gotext

_OUTSIDE = (Path(str(records.__file__)), Path(str(gotext.__file__)), Path(str(gotext.__file__)).with_name("printable_runes.txt"))
"""Files outside this package whose constants kernels use."""

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


@functools.cache
def use_cache() -> Path:
    """Make numba's cache the folder of the present kernels, and return it."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for source in (*sorted(here.rglob("*.py")), *_OUTSIDE):
        digest.update(source.relative_to(here.parent).as_posix().encode() + b"\0" + source.read_bytes() + b"\0")
    root = (
        os.environ.get("TIDEMILL_KERNEL_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidemill" / "kernels"
    )
    folder = Path(root) / f"{numba.__version__}-{digest.hexdigest()[:16]}"
    numba.config.CACHE_DIR = str(folder)
    event.register("numba:compile", Compiling(folder))
    return folder
