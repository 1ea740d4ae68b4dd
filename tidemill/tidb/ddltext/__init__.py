"""Prints DDL statements as TiCDC sends them: as TiDB's parser prints them after reading them.

The grammar is functions over a parser. Each consumes what it recognises and returns the text TiDB prints for it. TiDB prints in source
order and keeps the parentheses of the source, so there is no syntax tree, except where TiDB reorders: columns before constraints, options
of an index, flags of SELECT, ORDER BY and LIMIT of a UNION, joins. A statement that the grammar (of April 2026) does not cover is refused.

tidb/sql                    text to tokens (`lexer`), keywords
names                       other names for the tables of a statement
dialects                    what other databases write differently
cursor                      the position in the tokens, and the shared pieces of grammar
queries/                    the parser; literals, functions, expressions, hints, SELECT
column_types, constraints, columns, options, partitions, alter, statements   each uses those before it
synthesized                 statements made from a job

In: a statement. Out: the same as TiDB prints it. Read `statements.py` first.
"""

from __future__ import annotations

from tidemill.tidb.ddltext.dialects import EXACT, TICDC, Dialect, ExactDialect, Part
from tidemill.tidb.ddltext.names import FoundNames, Names, RoutedNames
from tidemill.tidb.ddltext.queries.parser import Parser
from tidemill.tidb.ddltext.queries.select import RULES
from tidemill.tidb.ddltext.statements import statement
from tidemill.tidb.sql.errors import DdlSyntaxError
from tidemill.tidb.sql.lexer import Kind, SqlMode, Token, tokenize

__all__ = [
    "EXACT", "TICDC", "DdlSyntaxError", "Dialect", "ExactDialect", "FoundNames", "Names", "Part", "RoutedNames", "SqlMode", "canonical_ddl",
    "exact_ddl",
]  # fmt: skip


def canonical_ddl(
    sql: str,
    sql_mode: int = 0,
    charset: str = "",
    collate: str = "",
    names: Names | None = None,
    dialect: Dialect = TICDC,
    *,
    printed: bool = False,
) -> str:
    """Return the text that TiCDC would send for one DDL statement, or the same statement in another dialect.

    `sql_mode`, `charset` and `collate` are those of the DDL job. `names` gives tables and schemas other names. `printed`: TiDB printed the
    text, see `sql.lexer`. The result is empty for a statement that only concerns placement, which TiCDC does not send, and for one that the
    dialect leaves out. Raises DdlSyntaxError for anything this grammar does not cover; the caller can then send the user's text.
    """
    try:
        mode = SqlMode(sql_mode)
        return statement(Parser(RULES, sql, mode, charset or "utf8mb4", collate or "utf8mb4_bin", names, dialect, printed=printed))
    except RecursionError:
        raise DdlSyntaxError("nested too deeply", 0) from None


def exact_ddl(text: str) -> str:
    """Return a text from a message or a binlog so that every reader reads what TiDB read. Raises DdlSyntaxError.

    Where TiDB's parser printed it, which the text itself shows, single backslashes in strings of the grammar stand for themselves.
    """
    return canonical_ddl(text, dialect=EXACT, printed=was_printed(text))


def was_printed(text: str) -> bool:
    """Return whether a text with backslashes is one that TiDB's parser printed: read so and printed again it has the same words."""
    if "\\" not in text:
        return False
    try:
        return _words(canonical_ddl(text, printed=True)) == _words(text)
    except DdlSyntaxError:
        return False


def _words(text: str) -> list[tuple[Kind, str]]:
    tokens: list[Token] = tokenize(text, SqlMode(0), printed=True)
    return [(token.kind, token.text) for token in tokens if token.upper != ";"]
