"""What a database says that it lacks → the DDL that makes it as it is upstream. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC

from tidemill.protocols.sql.literals import SqlTable
from tidemill.tidb.schema.show import add_column, create_table

NO_DATABASE, NO_COLUMN, NO_TABLE = 1049, 1054, 1146
_NAMED = re.compile(r"'((?:[^']|'')*)'")


def ddl_for(code: int, text: str, tables: Iterable[SqlTable]) -> str:
    """Return the statements that make what an error says is missing; nothing for another error. `tables`: those that were written."""
    found = _NAMED.search(text)
    if code not in (NO_DATABASE, NO_COLUMN, NO_TABLE) or found is None:
        return ""
    return "; ".join(dict.fromkeys(_statements(code, found[1].lower(), tables)))


def _statements(code: int, named: str, tables: Iterable[SqlTable]) -> Iterable[str]:
    for table in tables:
        schema, name = table.schema.lower(), table.table.lower()
        if (code == NO_TABLE and named == f"{schema}.{name}") or (code == NO_DATABASE and named == schema):
            yield create_table(table.schema, table.info, UTC)
        elif code == NO_COLUMN:
            lacking = [column for column in table.columns if named.rpartition(".")[2] == column.name.lower()]
            yield from (add_column(table.schema, table.info, column, UTC) for column in lacking)
