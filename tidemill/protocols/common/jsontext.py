"""The rule for text in JSON messages: UTF-8, and no half of a surrogate pair. Shared by all decoders.

JSON can spell such a half (`\\ud800`); it is not a character, no UTF-8 has it, and neither TiCDC nor Tidemill writes it.
"""

from __future__ import annotations

import re
from typing import Any

_SPELT = re.compile(rb"\\u[dD][89a-fA-F]")

INT32 = -(1 << 31), (1 << 31) - 1
INT64 = -(1 << 63), (1 << 63) - 1
"""First and last: what events, Arrow and Spark hold."""

HALF = "half of a surrogate pair is not a character"


_Path = tuple["_Path", str] | None
"""The name of a member behind those above it."""


def half_pair(data: bytes, found: Any) -> str | None:
    """Where `found`, the JSON of `data`, has text that is none: the path of the member, parts joined by points; None for nowhere.

    Names are shown with escapes.
    """
    if _SPELT.search(data) is None:
        return None
    rest: list[tuple[_Path, Any]] = [(None, found)]
    while rest:
        path, value = rest.pop()
        if isinstance(value, str) and _is_half(value):
            return _shown(path)
        if isinstance(value, dict):
            for name, member in value.items():
                if _is_half(name):
                    return _shown((path, name))
                if isinstance(member, str | dict | list):
                    rest.append(((path, name), member))
        elif isinstance(value, list):
            rest += [(path, one) for one in value if isinstance(one, str | dict | list)]
    return None


def _shown(path: _Path) -> str:
    parts = []
    while path is not None:
        path, name = path
        parts.append(name.encode("utf-8", "backslashreplace").decode())
    return ".".join(reversed(parts))


def _is_half(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
