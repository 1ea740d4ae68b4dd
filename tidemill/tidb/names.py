"""Names of schemas, tables and columns as TiDB compares them: by what Go makes of them in lower case, character by character.

Python's `str.lower` looks at what is around a final sigma, and makes two characters of a dotted capital I.
"""

from __future__ import annotations

import functools


@functools.lru_cache(maxsize=1 << 16)
def folded(name: str) -> str:
    """Equal for names that TiDB takes for the same."""
    return name.lower() if name.isascii() else "".join("i" if char == "\u0130" else char.lower() for char in name)


def folded_table(name: tuple[str, str]) -> tuple[str, str]:
    """As `folded`, of (schema, table)."""
    return folded(name[0]), folded(name[1])
