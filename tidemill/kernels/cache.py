"""The folder of compiled kernels.

Numba notices a change of the file that holds a kernel, but not of the files that it imports, so it could load a stale kernel after an edit
of a helper. Therefore all kernels compile into one folder whose name is a hash of all their sources: after any edit every kernel is
compiled again, once. A kernel module calls `use_cache` before its first decorated function.
"""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

import numba

from tidemill import records
from tidemill.protocols.common import gotext

_OUTSIDE = (Path(str(records.__file__)), Path(str(gotext.__file__)), Path(str(gotext.__file__)).with_name("printable_runes.txt"))
"""Files outside this package whose constants kernels use."""


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
    return folder
