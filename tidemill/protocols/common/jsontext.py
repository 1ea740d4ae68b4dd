"""The check of text in JSON messages: valid UTF-8 without lone surrogates. Shared by all decoders.

JSON can spell a lone surrogate (`\\ud800`). It is not a character, UTF-8 cannot hold it, and neither TiCDC nor Tidemill writes it.
"""

from __future__ import annotations

import re
from typing import Any

_SPELT = re.compile(rb"\\u[dD][89a-fA-F]")

INT32 = -(1 << 31), (1 << 31) - 1
INT64 = -(1 << 63), (1 << 63) - 1
"""Least and largest integer that events, Arrow and Spark hold."""

HALF = "half of a surrogate pair is not a character"


_Path = tuple["_Path", str] | None
"""A member's name, and the path of the object around it."""


def half_pair(data: bytes, found: Any) -> str | None:
    """Return the path (parts joined by dots, escaped) of a member of `found`, the JSON of `data`, with a lone surrogate, or None."""
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
