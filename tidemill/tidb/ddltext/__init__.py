"""Prints DDL statements as TiCDC sends them: as TiDB's parser prints them after reading them.

Every parsing method consumes what it recognises and returns the text TiDB prints for it. TiDB prints in source order and keeps the
parentheses of the source, so there is no syntax tree, except where TiDB reorders: columns before constraints, options of an index,
flags of SELECT, ORDER BY and LIMIT of a UNION, joins. A statement that the grammar (of December 2024) does not cover is refused.

tidb/sql                    text to tokens (`lexer`), keywords
names                       other names for the tables of a statement
cursor                      the position in the tokens, and the shared pieces of grammar
queries/                    literals, functions, expressions, hints, SELECT
column_types, constraints, columns, options, partitions, alter, statements   each a class built on the one before
synthesized                 statements made from a job

In: a statement. Out: the same as TiDB prints it. Read `statements.py` first.
"""

from __future__ import annotations

from tidemill.tidb.ddltext.errors import DdlSyntaxError
from tidemill.tidb.ddltext.names import FoundNames, Names, RoutedNames
from tidemill.tidb.ddltext.statements import Statements
from tidemill.tidb.sql.lexer import SqlMode

__all__ = ["DdlSyntaxError", "FoundNames", "Names", "RoutedNames", "SqlMode", "canonical_ddl"]


def canonical_ddl(sql: str, sql_mode: int = 0, charset: str = "", collate: str = "", names: Names | None = None) -> str:
    """Return the text that TiCDC would send for one DDL statement.

    `sql_mode`, `charset` and `collate` are those of the DDL job. `names` gives tables and schemas other names. The result is empty for a
    statement that only concerns placement, which TiCDC does not send. Raises DdlSyntaxError for anything this grammar does not cover; the
    caller can then send the user's text.
    """
    try:
        return Statements(sql, SqlMode(sql_mode), charset or "utf8mb4", collate or "utf8mb4_bin", names).statement()
    except RecursionError:
        raise DdlSyntaxError("nested too deeply", 0) from None
