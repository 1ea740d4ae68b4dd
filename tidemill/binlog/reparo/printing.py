"""What files tell, as lines for people. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tidemill import tso
from tidemill.binlog.outputs.named import NamedDdl, NamedRow, Told, Values

_TEXT = re.compile(r"_utf8mb4 x'([0-9a-f]*)'")


def lines(told: Told) -> Iterator[str]:
    """Yield the lines of a transaction or DDL."""
    yield f"commit {tso.describe(told.commit_ts)}"
    if isinstance(told, NamedDdl):
        yield f"  DDL {f'in {told.schema}: ' if told.schema else ''}{told.query}"
        return
    for row in told.rows:
        yield f"  {_row(row)}"


def _row(row: NamedRow) -> str:
    name = f"{row.schema}.{row.table}"
    if row.old is None:
        return f"INSERT {name} {_values(row.new or {})}"
    if row.new is None:
        return f"DELETE {name} {_values(row.old)}"
    return f"UPDATE {name} {_values(row.old)} -> {_values(row.new)}"


def _values(values: Values) -> str:
    return "(" + ", ".join(f"{name}={_shown(text)}" for name, text in values.items()) + ")"


def _shown(text: str) -> str:
    found = _TEXT.fullmatch(text)
    return repr(bytes.fromhex(found[1]).decode("utf-8", "backslashreplace")) if found else text
