"""The encode kernels are one family: compiled together, thrown away together. An entry module calls `keep` before its first kernel."""

from __future__ import annotations

from pathlib import Path

from tidemill.kernels import intrinsics
from tidemill.kernels.cache import use_cache
from tidemill.protocols.common import gotext


def keep() -> Path:
    """Direct numba's cache to the folder that is named by all sources of the family; returns it."""
    here = Path(__file__).parent
    runes = Path(str(gotext.__file__)).with_name("printable_runes.txt")
    return use_cache(*here.glob("*.py"), intrinsics.__file__, str(gotext.__file__), runes)
