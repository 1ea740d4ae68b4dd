"""Names of schemas, tables and columns as TiDB quotes and compares them: in Go's lower case, character by character.

Python's `str.lower` differs: it looks at the neighbours of a final sigma, and makes two characters of a dotted capital I.
"""

from __future__ import annotations

import functools


@functools.lru_cache(maxsize=1 << 16)
def folded(name: str) -> str:
    """Return a form that is equal for names that TiDB takes for the same."""
    return name.lower() if name.isascii() else "".join("i" if char == "\u0130" else char.lower() for char in name)


def folded_table(name: tuple[str, str]) -> tuple[str, str]:
    """Return the folded form of (schema, table)."""
    return folded(name[0]), folded(name[1])


def quote_name(name: str) -> str:
    """Return a name in backquotes."""
    return "`" + name.replace("`", "``") + "`"
