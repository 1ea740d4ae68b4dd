"""Statements made from a DDL job instead of the user's text. They are printed like any other.

Names are quoted properly here. TiCDC puts them between backquotes unescaped, and fails where that cannot be parsed.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.tidb.names import quote_name
from tidemill.tidb.sql.errors import DdlSyntaxError
from tidemill.tidb.sql.lexer import Kind, SqlMode, Token, tokenize

Name = tuple[str, str]
"""Schema and table."""


def qualified(name: Name) -> str:
    """Return a table's name in backquotes, with its schema."""
    return f"{quote_name(name[0])}.{quote_name(name[1])}"


def drop_table(table: Name) -> str:
    """Return the DROP TABLE of one job of `DROP TABLE a, b`. IF EXISTS, TEMPORARY and RESTRICT are left out."""
    return f"DROP TABLE {qualified(table)}"


def drop_view(view: Name) -> str:
    """Return the DROP VIEW of one job of `DROP VIEW a, b`."""
    return f"DROP VIEW {qualified(view)}"


def rename_table(old: Name, new: Name) -> str:
    """Return the RENAME TABLE of one pair in `RENAME TABLE a TO b, c TO d` (job type 47). A single rename (14) mostly keeps its text."""
    return f"RENAME TABLE {qualified(old)} TO {qualified(new)}"


def rename_tables(pairs: Sequence[tuple[Name, Name]]) -> str:
    """Return the RENAME TABLE of several pairs, from left to right."""
    return "RENAME TABLE " + ", ".join(f"{qualified(old)} TO {qualified(new)}" for old, new in pairs)


def exchange_partition(query: str, partitioned: Name, plain: Name, sql_mode: int = 0) -> str:
    """Return EXCHANGE PARTITION with the partition's name as the user wrote it and the tables of the job.

    Raises DdlSyntaxError when the text has no EXCHANGE PARTITION.
    """
    tokens, at = _exchange(query, sql_mode)
    text = f"ALTER TABLE {qualified(partitioned)} EXCHANGE PARTITION {quote_name(_name(tokens[at]))}"
    text += f" WITH TABLE {qualified(plain)}"
    return text + " WITHOUT VALIDATION" if _ends_without_validation([token.upper for token in tokens]) else text


def exchanged_partition(query: str, sql_mode: int = 0) -> str:
    """Return the name of the partition in EXCHANGE PARTITION. Raises DdlSyntaxError when the text has none."""
    tokens, at = _exchange(query, sql_mode)
    return _name(tokens[at])


def _exchange(query: str, sql_mode: int) -> tuple[list[Token], int]:
    """Return the tokens of a statement, and the place of the partition's name among them. Raises DdlSyntaxError."""
    tokens = tokenize(query, SqlMode(sql_mode))
    words = [token.upper for token in tokens]
    for index in range(len(words) - 2):
        if words[index : index + 2] == ["EXCHANGE", "PARTITION"]:
            return tokens, index + 2
    raise DdlSyntaxError("expected EXCHANGE PARTITION name", len(query))


def _name(token: Token) -> str:
    if token.kind not in (Kind.NAME, Kind.WORD):
        raise DdlSyntaxError("expected the name of a partition", token.position)
    return token.text


def _ends_without_validation(words: list[str]) -> bool:
    return [word for word in words if word and word != ";"][-2:] == ["WITHOUT", "VALIDATION"]


def split_statements(query: str) -> list[str]:
    """Return the statements of a job that creates several tables (type 60), in default mode: one event for each, in this order."""
    statements: list[str] = []
    start = 0
    for token in tokenize(query, SqlMode(0)):
        if token.upper == ";" or token.kind is Kind.END:
            if piece := query[start : token.position].strip():
                statements.append(piece)
            start = token.position + 1
    return statements
