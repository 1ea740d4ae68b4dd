"""Binary JSON as its plain text. Reference: `tidemill.tidb.types.jsonbin`.

`write.binary_json` writes documents as the inside of a JSON string. The traversal is the same here, so its functions are copied with two of
their callees replaced: a quotation mark is one byte, and strings are escaped once.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from tidemill.kernels.intrinsics import copy32, jit, page_safe, st8
from tidemill.kernels.write import binary_json
from tidemill.kernels.write.text import MODE_PLAIN, mask_plain, w_escaped


@jit
def w_mark(p):
    """Write a quotation mark."""
    st8(p, 34)
    return p + 1


@jit
def w_string(T, p, a, n, S):
    """Write a string with its quotation marks; most are short and have nothing to escape."""
    st8(p, 34)
    if 0 < n <= 32 and page_safe(a, 32):
        copy32(p + 1, a)
        if mask_plain(a) & ((1 << n) - 1) == 0:
            st8(p + 1 + n, 34)
            return p + n + 2
    return w_mark(w_escaped(T, p + 1, a, n, MODE_PLAIN, S))


def _plain() -> Any:
    """Return a copy of `w_json` of `write.binary_json` that writes marks and strings with these two functions.

    A copy has a name of its own. A compiled function is a symbol of its module, its name and a number that each process counts for itself.
    Entry points out of the cache that different processes compiled bring such symbols along, and of two equal ones the linker keeps one.
    """
    names = {**vars(binary_json), "w_mark": w_mark, "w_string": w_string}
    for name in ("w_calendar", "w_scalar", "w_json"):
        own = f"{name}_text"
        code = names[name].function.__code__.replace(co_name=own, co_qualname=own)
        names[name] = jit(FunctionType(code, names, own))
    return names["w_json"]


w_json_text = _plain()
"""(T, p, a, n, S): the text of the n bytes at a (type code and body) at p; returns its end, or -1 if they are broken."""
