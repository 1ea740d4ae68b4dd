"""Prints DDL statements the way TiCDC sends them: as TiDB's parser would after reading them."""

from __future__ import annotations

from tidemill.tidb.ddltext.errors import DdlSyntaxError
from tidemill.tidb.ddltext.lexer import SqlMode
from tidemill.tidb.ddltext.statements import Statements

__all__ = ["DdlSyntaxError", "SqlMode", "canonical_ddl"]


def canonical_ddl(sql: str, sql_mode: int = 0, charset: str = "", collate: str = "") -> str:
    """The text of one DDL statement that TiCDC would send.

    `sql_mode`, `charset` and `collate` are those of the DDL job. The result may be empty: a statement that only concerns
    placement is not worth sending. Raises DdlSyntaxError for anything this grammar does not cover, so that a caller can
    fall back to the user's text and say so.
    """
    try:
        return Statements(sql, SqlMode(sql_mode), charset or "utf8mb4", collate or "utf8mb4_bin").statement()
    except RecursionError:
        raise DdlSyntaxError("nested too deeply", 0) from None
