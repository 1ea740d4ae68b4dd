"""The Avro kernels are one family: compiled together, thrown away together. The entry module calls `keep` before its kernel."""

from __future__ import annotations

from pathlib import Path

from tidemill import records
from tidemill.kernels import encode, intrinsics
from tidemill.kernels.cache import use_cache

_SHARED = ("base64", "binary_json", "keys", "layout", "locate", "numbers", "tables", "text", "times", "values")


def keep() -> Path:
    """Direct numba's cache to the folder that is named by all sources of the family; returns it."""
    here, shared = Path(__file__).parent, Path(str(encode.__file__)).parent
    own = [here / f"{name}.py" for name in ("documents", "layout", "rows", "sums", "values")]
    return use_cache(*own, *(shared / f"{name}.py" for name in _SHARED), str(intrinsics.__file__), str(records.__file__))
