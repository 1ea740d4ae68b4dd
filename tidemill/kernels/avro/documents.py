"""Binary JSON as its plain text. Reference: `tidemill.tidb.types.jsonbin`.

`encode.binary_json` writes documents as the inside of a JSON string. The walk through a document is the same, so its functions are made
anew here with two names bound to something else: a quotation mark is one byte, and strings are escaped once.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from tidemill.kernels.encode import binary_json
from tidemill.kernels.encode.text import MODE_PLAIN
from tidemill.kernels.intrinsics import jit, st8


@jit
def w_mark(p):
    """A quotation mark."""
    st8(p, 34)
    return p + 1


def _plain() -> Any:
    """`w_json` of `encode.binary_json`, and what it calls that writes marks and strings, over these two names."""
    names = {**vars(binary_json), "w_mark": w_mark, "MODE_NESTED": MODE_PLAIN}
    for name in ("w_calendar", "w_string", "w_scalar", "w_json"):
        names[name] = jit(FunctionType(names[name].py_func.__code__, names, name))
    return names["w_json"]


w_json_text = _plain()
"""(T, p, a, n, S): the text of the n bytes at a (type code and body) at p; returns its end, or -1 if they are broken."""
