"""Which tables and databases a Drainer delivers. Pure.

Names are compared without regard to case. A pattern that begins with `~` is a regular expression that may fit anywhere in the name; any
other is one that has to fit the whole name. The list of what to take comes first, then that of what to leave out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tidemill.errors import ConfigError

IGNORED_SCHEMAS = "INFORMATION_SCHEMA,PERFORMANCE_SCHEMA,mysql"


@dataclass(frozen=True, slots=True)
class TableName:
    """Patterns of a database and a table."""

    schema: str
    table: str


def _compiled(pattern: str) -> re.Pattern[str]:
    text = pattern[1:] if pattern.startswith("~") else f"^(?:{pattern})$"
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as error:
        raise ConfigError(f"the filter {pattern!r} is not a regular expression: {error}") from None


class Filter:
    """Raises ConfigError for a pattern that is none."""

    def __init__(
        self, ignore_schemas: str, ignore_tables: Iterable[TableName], do_schemas: Iterable[str], do_tables: Iterable[TableName]
    ) -> None:
        self._no_schemas = [_compiled(name.strip()) for name in ignore_schemas.split(",") if name.strip()]
        self._schemas = [_compiled(name) for name in do_schemas]
        self._no_tables = [(_compiled(one.schema), _compiled(one.table)) for one in ignore_tables]
        self._tables = [(_compiled(one.schema), _compiled(one.table)) for one in do_tables]

    def takes(self, schema: str, table: str) -> bool:
        """Whether a table is delivered; with an empty table: the DDLs of a database."""
        if self._schemas or self._tables:
            named = any(pattern.search(schema) for pattern in self._schemas)
            if not named and not _any(self._tables, schema, table):
                return False
        return not any(pattern.search(schema) for pattern in self._no_schemas) and not _any(self._no_tables, schema, table)


def _any(patterns: Iterable[tuple[re.Pattern[str], re.Pattern[str]]], schema: str, table: str) -> bool:
    return bool(table) and any(one.search(schema) and two.search(table) for one, two in patterns)
