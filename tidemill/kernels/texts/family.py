"""The kernels of the text protocols are one family: compiled together, thrown away together. An entry module calls `keep` first."""

from __future__ import annotations

from pathlib import Path

from tidemill import records
from tidemill.kernels import encode, intrinsics
from tidemill.kernels.cache import use_cache
from tidemill.protocols.common import gotext

_SHARED = ("base64", "binary_json", "compress", "keys", "layout", "locate", "numbers", "tables", "text", "times", "values")


def keep() -> Path:
    """Direct numba's cache to the folder that is named by all sources of the family; returns it."""
    here, shared = Path(__file__).parent, Path(str(encode.__file__)).parent
    runes = Path(str(gotext.__file__)).with_name("printable_runes.txt")
    own = [here / name for name in ("layout.py", "values.py", "handles.py", "rows.py")]
    used = [shared / f"{name}.py" for name in _SHARED]
    return use_cache(*own, *used, str(intrinsics.__file__), str(records.__file__), str(gotext.__file__), runes)
