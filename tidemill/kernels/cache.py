"""Where compiled kernels are kept.

Numba notices a change of the file that holds a kernel but not of the files that it imports, so a stale kernel could be
loaded after an edit of a helper. Each family of kernels therefore compiles into a folder named by a hash of all its
sources. Call `use_cache` in a kernel module before its first decorated function.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numba


def use_cache(*sources: str | Path) -> Path:
    """Direct numba's cache to the folder of these source files (their contents); returns it."""
    digest = hashlib.sha256()
    for source in sorted(Path(s) for s in sources):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    root = (
        os.environ.get("TIDEMILL_KERNEL_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidemill" / "kernels"
    )
    folder = Path(root) / f"{numba.__version__}-{digest.hexdigest()[:16]}"
    numba.config.CACHE_DIR = str(folder)
    return folder
