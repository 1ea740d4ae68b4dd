"""Queries that TiCDC makes from a DDL job instead of taking the user's text.

Names are put between backquotes as they are: a backquote inside a name is not doubled, and such a query does not parse.
The results go through canonical_ddl like any other query.
"""

from __future__ import annotations

from tidemill.tidb.ddltext.errors import DdlSyntaxError
from tidemill.tidb.ddltext.lexer import SqlMode, tokenize

_EXCHANGE = "EXCHANGE PARTITION"
_WITH_TABLE = "WITH TABLE"


def drop_table(schema: str, table: str) -> str:
    """One job of DROP TABLE a, b. IF EXISTS, TEMPORARY and RESTRICT of the statement are lost."""
    return f"DROP TABLE `{schema}`.`{table}`"


def drop_view(schema: str, view: str) -> str:
    return f"DROP VIEW `{schema}`.`{view}`"


def rename_table(old_schema: str, old_table: str, new_schema: str, new_table: str) -> str:
    """One pair of RENAME TABLE a TO b, c TO d (job type 47). A single rename (type 14) keeps the user's text."""
    return f"RENAME TABLE `{old_schema}`.`{old_table}` TO `{new_schema}`.`{new_table}`"


def exchange_partition(query: str, partitioned_schema: str, partitioned_table: str, other_schema: str, other_table: str) -> str:
    """The partition's name is cut out of the user's text, quotes included; the tables come from the job."""
    upper = query.upper()
    start, end = upper.find(_EXCHANGE), upper.find(_WITH_TABLE)
    if start < 0 or end < start:
        raise DdlSyntaxError("expected EXCHANGE PARTITION … WITH TABLE", 0)
    partition = query[start + len(_EXCHANGE) : end].strip()
    text = (
        f"ALTER TABLE `{partitioned_schema}`.`{partitioned_table}` EXCHANGE PARTITION `{partition}`"
        f" WITH TABLE `{other_schema}`.`{other_table}`"
    )
    return text + " WITHOUT VALIDATION" if upper.endswith("WITHOUT VALIDATION") else text


def split_statements(query: str) -> list[str]:
    """The statements of a job that creates several tables (type 60): one event for each, in this order."""
    statements: list[str] = []
    start = 0
    for token in tokenize(query, SqlMode(0)):
        if token.upper == ";" or token.position == len(query):
            if piece := query[start : token.position].strip():
                statements.append(piece)
            start = token.position + 1
    return statements
