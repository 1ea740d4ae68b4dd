"""The cache of this family of kernels: it is compiled anew when any of its sources changes."""

from __future__ import annotations

from pathlib import Path

from tidemill.kernels import cache, intrinsics

_SOURCES = (*sorted(Path(__file__).parent.glob("*.py")), Path(intrinsics.__file__))


def use_family_cache() -> None:
    """Call in each module of the family before its first entry point."""
    cache.use_cache(*_SOURCES)
