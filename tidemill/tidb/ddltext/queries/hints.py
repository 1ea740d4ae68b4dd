"""Optimizer hints after SELECT: /*+ NAME(…) NAME(…) */.

TiDB drops hints that it does not know, and all of them after a malformed one. This parser only covers hints that TiDB
prints; anything else is refused.
"""

from __future__ import annotations

from tidemill.tidb.ddltext.cursor import Cursor, printed_name
from tidemill.tidb.ddltext.names import Names
from tidemill.tidb.ddltext.queries.literals import quote_text
from tidemill.tidb.names import quote_name
from tidemill.tidb.sql.keywords import words
from tidemill.tidb.sql.lexer import Kind, SqlMode

_TABLES = words("""
    MERGE_JOIN NO_MERGE_JOIN BROADCAST_JOIN SHUFFLE_JOIN INL_JOIN NO_INDEX_JOIN INL_HASH_JOIN NO_INDEX_HASH_JOIN
    INL_MERGE_JOIN NO_INDEX_MERGE_JOIN HASH_JOIN NO_HASH_JOIN HASH_JOIN_BUILD HASH_JOIN_PROBE LEADING TIDB_HJ TIDB_INLJ
    TIDB_SMJ
    """)
_INDEXES = words("USE_INDEX IGNORE_INDEX USE_INDEX_MERGE FORCE_INDEX ORDER_INDEX NO_ORDER_INDEX")
_NULLARY = words("""
    HASH_AGG MPP_1PHASE_AGG MPP_2PHASE_AGG STREAM_AGG AGG_TO_COP LIMIT_TO_COP NO_INDEX_MERGE READ_CONSISTENT_REPLICA
    IGNORE_PLAN_CACHE STRAIGHT_JOIN NO_DECORRELATE MERGE
    """)
# TiDB prints these without their tables.
_FORGETFUL = words("INDEX_JOIN INDEX_HASH_JOIN INDEX_MERGE_JOIN SWAP_JOIN_INPUTS NO_SWAP_JOIN_INPUTS")
_TOGGLES = frozenset(("USE_TOJA", "USE_CASCADES"))


def print_hints(comment: str, mode: SqlMode, names: Names) -> str:
    """Return the text that TiDB prints for one hint comment, followed by a blank."""
    return f"/*+ {Hints(comment[3:-2], mode, '', '', names).hints()}*/ "


class Hints(Cursor):
    """The hints of one comment."""

    def hints(self) -> str:
        parts = [self.hint()]
        while not self.at_end():
            self.accept(",")
            parts.append(self.hint())
        return " ".join(parts)

    def word(self) -> str:
        return self.expect_kind(Kind.NAME, Kind.WORD).text

    def hint(self) -> str:
        name = self.word().upper()
        self.expect("(")
        if name == "QB_NAME":
            text = quote_name(self.word())
        else:
            block = f"@{quote_name(self.next().text)}" if self.token.kind is Kind.USER_VARIABLE else ""
            body = self.body(name)
            text = block + (" " if block and name not in _NULLARY else "") + body
        self.expect(")")
        return f"{name}({text})"

    def body(self, name: str) -> str:
        if name in _NULLARY:
            return ""
        if name in _TABLES:
            return "" if self.at(")") else self.list_of(self.table)
        if name in _FORGETFUL:
            if not self.at(")"):
                self.list_of(self.table)
            return ""
        if name in ("USE_PLAN_CACHE", "SEMI_JOIN_REWRITE"):
            return ""
        if name in _INDEXES:
            table = self.table()
            self.accept(",")
            return f"{table} " + ("" if self.at(")") else self.list_of(lambda: quote_name(self.word())))
        if name in _TOGGLES:
            return self.expect_any(("TRUE", "FALSE"))
        if name in ("MAX_EXECUTION_TIME", "NTH_PLAN"):
            return str(self.positive())
        if name == "MEMORY_QUOTA":
            amount = self.positive()
            return f"{amount * {'MB': 1, 'GB': 1024}[self.unit()]} MB"
        if name == "READ_FROM_STORAGE":
            return self.storage()
        if name == "RESOURCE_GROUP":
            return quote_name(self.word())
        if name == "TIME_RANGE":
            start = self.text()
            self.accept(",")
            return f"{start}, {self.text()}"
        if name == "SET_VAR":
            return self.variable()
        raise self.fail("a known hint")

    def unit(self) -> str:
        unit = self.word().upper()
        if unit not in ("MB", "GB"):
            raise self.fail("MB or GB")
        return unit

    def table(self) -> str:
        schema, table = "", self.word()
        if self.accept("."):
            schema, table = table, self.word()
        text = printed_name(self.names.qualifier((schema, table)))
        if self.token.kind is Kind.USER_VARIABLE:
            text += f"@{quote_name(self.next().text)}"
        if self.at("PARTITION", "("):
            self.next()
            text += f" PARTITION{self.in_parentheses(lambda: quote_name(self.word()))}"
        return text

    def storage(self) -> str:
        kind = self.word().upper()
        if kind not in ("TIKV", "TIFLASH"):
            raise self.fail("TIKV or TIFLASH")
        self.expect("[")
        tables = self.list_of(self.table)
        self.expect("]")
        if self.at(","):
            raise self.fail("one kind of storage")
        return f"{kind}[{tables}]"

    def variable(self) -> str:
        name = self.word()
        self.expect("=")
        if self.token.kind is Kind.STRING:
            value = self.raw_string()
        elif self.token.kind is Kind.INT or self.at_any(("+", "-")):
            value = str(self.signed())
        else:
            value = self.word()
        return f"{name} = {quote_text(value)}"
