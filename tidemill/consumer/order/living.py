"""Finds the topics whose tables can still get rows, from their messages. Pure.

A writer sends no more resolved ts to a topic without tables. A topic loses tables by DDLs in it (DROP TABLE, a rename, the loss of the key
without which rows are not delivered) or elsewhere (DROP DATABASE is in the changefeed's default topic). A topic that has lost all tables in
its messages has *ended*, until a row or a DDL there shows a table again. A possible loss counts as one; later messages correct it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from tidemill.protocols.open.events import DdlMessage
from tidemill.tidb.ddltext import DdlSyntaxError, SqlMode
from tidemill.tidb.names import folded
from tidemill.tidb.sql.lexer import Kind, Token, tokenize

_EXCHANGES = re.compile(r"\bEXCHANGE\s+PARTITION\b", re.IGNORECASE)

Name = tuple[str, str]
"""(schema, table) in lower case. An empty table means all tables of the schema; an empty schema is not in the DDL's text."""


class TableLiveness:
    """The tables in each topic's messages, and the tables that are gone. Rows at the ts of a DDL precede it."""

    def __init__(self) -> None:
        self._told: dict[str, dict[Name, int]] = {}  # topic → table → ts of the last message that told of it
        self._gone: dict[Name, int] = {}
        self._ended: set[str] = set()

    def restore(self, topic: str, names: Iterable[Name], ts: int, *, ended: bool) -> None:
        """Restore the tables of a topic at a ts."""
        told = self._told.setdefault(topic, {})
        for name in names:
            told.setdefault(name, ts)
        if ended:
            self._ended.add(topic)

    def tell(self, topic: str, schema: str, table: str, ts: int) -> None:
        """Note a message of a topic that shows that a table exists."""
        told, name = self._told.setdefault(topic, {}), _folded(schema, table)
        if ts > told.get(name, -1):
            told[name] = ts
            if topic in self._ended and ts > self._gone_ts(name):
                self._ended.discard(topic)

    def take_ddl(self, topic: str, ddl: DdlMessage) -> None:
        """Take a DDL of any topic."""
        lost = lost_tables(ddl)
        if not lost:
            if ddl.table and not _EXCHANGES.search(ddl.query):  # an exchange is in the topic of the other table
                self.tell(topic, ddl.schema, ddl.table, ddl.ts)
            return
        told = self._told.setdefault(topic, {})
        for schema, table in lost:
            # The message of a rename into another schema has only the new one.
            named = [(schema, table)] if schema else [n for n in told if n[1] == table] or [_folded(ddl.schema, table)]
            for name in named:
                self._gone[name] = max(ddl.ts, self._gone.get(name, 0))
                if table:
                    told.setdefault(name, ddl.ts)
        self._ended |= {topic for topic, tables in self._told.items() if tables and not any(self._lives(*item) for item in tables.items())}

    def _lives(self, name: Name, ts: int) -> bool:
        return ts > self._gone_ts(name)

    def _gone_ts(self, name: Name) -> int:
        return max(self._gone.get(name, 0), self._gone.get((name[0], ""), 0))

    def has_ended(self, topic: str) -> bool:
        """Return whether all tables in a topic's messages are gone."""
        return topic in self._ended

    def living(self) -> dict[str, tuple[Name, ...]]:
        """Return the tables of each topic, for `restore`."""
        return {topic: tuple(sorted(n for n, ts in tables.items() if self._lives(n, ts))) for topic, tables in self._told.items()}


@lru_cache(maxsize=1 << 16)
def _folded(schema: str, table: str) -> Name:
    return folded(schema), folded(table)


def lost_tables(ddl: DdlMessage) -> frozenset[Name]:
    """Return the tables that may get no more rows after a DDL: it drops or renames them, may drop their key, or they are views.

    A text that cannot be parsed gives none.
    """
    try:
        return frozenset(_Text(tokenize(ddl.query, SqlMode(0))).lost())
    except DdlSyntaxError:
        return frozenset()


class _Text:
    """A statement's tokens."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens, self._at = tokens, 0

    def _word(self, ahead: int = 0) -> str:
        token = self._tokens[min(self._at + ahead, len(self._tokens) - 1)]
        return token.upper if token.kind in (Kind.WORD, Kind.OPERATOR) else ""

    def _accept(self, *words: str) -> bool:
        if all(self._word(n) == word for n, word in enumerate(words)):
            self._at += len(words)
            return True
        return False

    def _identifier(self) -> str:
        token = self._tokens[self._at]
        self._at += token.kind is not Kind.END
        return folded(token.text)

    def _name(self) -> Name:
        first = self._identifier()
        return (first, self._identifier()) if self._accept(".") else ("", first)

    def lost(self) -> Iterator[Name]:
        """See `lost_tables`."""
        if self._accept("DROP"):
            yield from self._dropped()
        elif self._accept("RENAME", "TABLE"):
            yield from self._renamed()
        elif self._accept("ALTER", "TABLE"):
            name = self._name()
            if self._may_lose():
                yield name
        elif self._accept("CREATE"):
            while self._word() not in ("VIEW", "TABLE", "(") and self._tokens[self._at].kind is not Kind.END:
                self._at += 1
            if self._accept("VIEW"):
                yield self._name()

    def _dropped(self) -> Iterator[Name]:
        if self._accept("DATABASE") or self._accept("SCHEMA"):
            self._accept("IF", "EXISTS")
            yield self._identifier(), ""
        elif self._accept("TABLE") or self._accept("TABLES") or self._accept("VIEW"):
            self._accept("IF", "EXISTS")
            yield self._name()
            while self._accept(","):
                yield self._name()
        elif self._accept("INDEX"):
            self._accept("IF", "EXISTS")
            self._identifier()
            if self._accept("ON"):
                yield self._name()

    def _renamed(self) -> Iterator[Name]:
        more = True
        while more:
            yield self._name()
            self._accept("TO")
            self._name()
            more = self._accept(",")

    def _may_lose(self) -> bool:
        """Return whether an ALTER TABLE renames the table, or changes a key or a column that a key may need."""
        depth, begins = 0, True
        while self._tokens[self._at].kind is not Kind.END:
            word, following = self._word(), self._word(1)
            if begins and (
                (word == "RENAME" and following not in ("COLUMN", "INDEX", "KEY"))
                or (word == "DROP" and following in ("PRIMARY", "INDEX", "KEY"))
                or word in ("MODIFY", "CHANGE")
            ):
                return True
            depth += (word == "(") - (word == ")")
            begins = word == "," and depth == 0
            self._at += 1
        return False
