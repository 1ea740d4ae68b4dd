"""The SQL that makes a downstream as the upstream was at the ts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC

from tidemill.diff.model import DiffTable
from tidemill.diff.rows import RowDifference, What
from tidemill.protocols.sql.literals import NO_ELEMENT, literals
from tidemill.sinks.mysql.dialect import CannotRun, rewritten
from tidemill.sinks.mysql.session import Server
from tidemill.sinks.mysql.statements import TableStatements
from tidemill.tidb.names import quote_name
from tidemill.tidb.schema.show import create_table

BEGIN = (
    "SET NAMES utf8mb4;",
    "SET SESSION sql_mode = 'ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO', time_zone = '+00:00', foreign_key_checks = 0;",
)
"""The session in which the statements are to be run."""


def creating(table: DiffTable, server: Server | None) -> Iterator[str]:
    """Yield what creates a table that is not there, as the server takes it; None: in TiDB's words. What it cannot run is a comment with its
    cure."""
    yield f"CREATE DATABASE IF NOT EXISTS {quote_name(table.schema)};"
    text = create_table(table.schema, table.origin or table.info, UTC)
    try:
        yield (text if server is None else rewritten(text, server)[0]) + ";"
    except CannotRun as error:
        yield f"-- {' '.join(error.message.split())}. {error.cure}."


def statements(tables: Sequence[DiffTable], differences: Iterable[RowDifference]) -> Iterator[bytes]:
    """Yield the statements, a line each: of a table first what goes, then what is written, so that no unique key is in the way."""
    by_table: dict[int, list[RowDifference]] = {}
    for one in differences:
        by_table.setdefault(one.table, []).append(one)
    for number, found in sorted(by_table.items()):
        made = TableStatements(tables[number].sql, None)
        yield from (text for one in found if one.what is What.EXTRA for text in [_delete(made, one)] * one.times)
        yield from (text for one in found if one.what is not What.EXTRA for text in [_write(made, one)] * one.times)


def _delete(made: TableStatements, one: RowDifference) -> bytes:
    return made.deleted(one.key, safe=True).text + b";"


def _write(made: TableStatements, one: RowDifference) -> bytes:
    assert one.upstream is not None
    about = b"-- differs in " + ", ".join(one.columns).replace("\n", " ").encode() + b"\n" if one.columns else b""
    return about + made.written(one.upstream, replace=made.has_key).text + b";"


def shown(table: DiffTable, one: RowDifference) -> str:
    """Return a difference for people."""
    where = TableStatements(table.sql).found(one.key).decode("utf-8", "replace")
    where = where if len(where) <= 200 else where[:200] + "…"
    if one.what is not What.CHANGED:
        times = f" {one.times} times" if one.times > 1 else ""
        return f"{table.name}: row {where} is {'not there' if one.what is What.MISSING else 'too many'}{times}"
    return f"{table.name}: row {where} differs in {'; '.join(_columns(table, one))}"


def _columns(table: DiffTable, one: RowDifference) -> Iterator[str]:
    assert one.upstream is not None
    assert one.downstream is not None
    ours, theirs = (dict(zip((c.name for c in table.sql.columns), literals(text), strict=False)) for text in (one.upstream, one.downstream))
    for column in one.columns[:5]:
        yield f"{column}: upstream {_short(ours.get(column, b''))}, downstream {_short(theirs.get(column, b''))}"


def _short(text: bytes) -> str:
    shown = text.decode("utf-8", "replace").replace(NO_ELEMENT.decode(), "0")
    return shown if len(shown) <= 60 else shown[:60] + "…"
