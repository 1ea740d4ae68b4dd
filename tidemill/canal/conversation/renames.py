"""The old name of a table that a DDL renames: a filter lets a RENAME through if it wants the old or the new name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tidemill.protocols.canal.parse import EntryError, parse_entry

LONGEST = 64 << 10
"""Characters of a statement that are looked at."""
_NAME = r"(`(?:[^`]|``)*`|[^\s`.,;=()]+)"
_TABLE = rf"{_NAME}(?:\s*\.\s*{_NAME})?"
_BLANK = r"(?:\s|/\*(?:[^*]|\*(?!/))*\*/)+"
_RENAME = re.compile(rf"\s*RENAME{_BLANK}TABLES?{_BLANK}", re.IGNORECASE)
_PAIR = re.compile(rf"{_TABLE}\s+TO\s+{_TABLE}\s*,?\s*", re.IGNORECASE)
_ALTER = re.compile(rf"\s*ALTER{_BLANK}(?:IGNORE{_BLANK})?TABLE{_BLANK}{_TABLE}\s", re.IGNORECASE)


def _plain(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def old_names(sql: str, schema: str) -> list[tuple[str, str]]:
    """(schema, table) of the tables that a statement renames. `schema`: of names without one."""
    text = sql[:LONGEST]
    if (found := _ALTER.match(text)) is not None:
        return [_name(found[1], found[2], schema)]
    if (begin := _RENAME.match(text)) is None:
        return []
    return list(_renamed(text, begin.end(), schema))


def _renamed(text: str, at: int, schema: str) -> Iterator[tuple[str, str]]:
    while (pair := _PAIR.match(text, at)) is not None:
        yield _name(pair[1], pair[2], schema)
        at = pair.end()


def _name(first: str, second: str | None, schema: str) -> tuple[str, str]:
    return (_plain(first), _plain(second)) if second is not None else (schema, _plain(first))


def renamed_by(data: bytes | memoryview) -> list[tuple[str, str]]:
    """The same of an entry; nothing for one that cannot be read, or is not a DDL."""
    try:
        entry = parse_entry(bytes(data))
    except EntryError:
        return []
    if entry.change is None or not entry.change.ddl:
        return []
    return old_names(entry.change.sql, entry.change.ddl_schema or entry.header.schema)
