"""Table rules in TiDB's table-filter language, as in `filter.rules` and in a dispatcher's `matcher`.

    db.tbl   db*.t?bl[0-9]   !db.tbl   `a b`."c.d"   a\\.b.*   /^db\\d+$/./x/

Empty rules and those that begin with `#` are ignored. The last rule that matches decides; without one a table is out. Case is ignored by
default. Regular expressions are Go's and match anywhere in the name; wildcards are compiled to them. The rules are those of TiDB's
description of the table filter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tidemill.budget import current
from tidemill.errors import ConfigError
from tidemill.rules.patterns import GoRegex, go_literal
from tidemill.visible import cut

_PLAIN = re.compile(r"[0-9A-Za-z$_\u0080-\U0010ffff]")
_CLASS = re.compile(r"\[(!?)((?:\\[^0-9A-Za-z]|[^\\\]])+)\]")
_QUOTED = {'"': re.compile(r'"((?:[^"]|"")+)"'), "`": re.compile(r"`((?:[^`]|``)+)`")}
_REGEX = re.compile(r"/((?:\\.|[^/\\])+)/")


_REMEMBERED = 1 << 16
"""Names whose result a filter keeps, because some are looked up for every row."""


@dataclass(frozen=True, slots=True)
class _Rule:
    schema: GoRegex
    table: GoRegex
    any_table: bool  # the table pattern is `*`
    positive: bool


class TableFilter:
    """Compiled rules. Raises ConfigError that names the rule, the place and the fault."""

    def __init__(self, rules: Iterable[str], *, case_sensitive: bool = False, where: str = "filter rule") -> None:
        self._rules = [rule for text in rules if (rule := _Parser(text, case_sensitive, where).rule()) is not None]
        self._rules.reverse()
        self._known: dict[tuple[str, str], bool] = {}

    def matches(self, schema: str, table: str) -> bool:
        """Return whether the rules let a table in. System schemas are not special here."""
        name = schema, table
        found = self._known.get(name)
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self._known[name] = self._look(schema, table)
        return found

    def _look(self, schema: str, table: str) -> bool:
        current().spend("matches", len(self._rules))
        for rule in self._rules:
            if rule.schema.found_in(schema) and rule.table.found_in(table):
                return rule.positive
        return False

    def matches_schema(self, schema: str) -> bool:
        """Return whether some table of a schema may be let in. This decides about DDLs of the schema itself.

        A rule `!db.*` leaves the schema out; `!db.tbl` does not.
        """
        for rule in self._rules:
            if rule.schema.found_in(schema) and (rule.positive or rule.any_table):
                return rule.positive
        return False


class ColumnFilter:
    """Rules about the columns of a table, in the same language without the part before the dot. Case is ignored.

    The last rule that matches decides; without one a column is out. Raises ConfigError.
    """

    def __init__(self, rules: Iterable[str], *, where: str = "column rule") -> None:
        self._rules = [rule for text in rules if (rule := _Parser(text, False, where).column_rule()) is not None]
        self._rules.reverse()

    def matches(self, column: str) -> bool:
        """Return whether the rules let a column in."""
        return next((positive for pattern, positive in self._rules if pattern.found_in(column)), False)


class _Parser:
    """Parses one rule from left to right."""

    def __init__(self, text: str, case_sensitive: bool, where: str) -> None:
        self._text = text.strip()
        self._at = 0
        self._fold = not case_sensitive
        self._where = where

    def rule(self) -> _Rule | None:
        text = self._text
        if not text or text.startswith("#"):
            return None
        positive = self._sign()
        schema = self._pattern()
        if self._at >= len(text) or text[self._at] != ".":
            raise self._error("expected `.` between the schema pattern and the table pattern")
        self._at += 1
        any_table = text[self._at :] == "*"
        table = self._pattern()
        if self._at < len(text):
            raise self._error("unexpected text after the table pattern")
        return _Rule(schema, table, any_table, positive)

    def column_rule(self) -> tuple[GoRegex, bool] | None:
        """Parse a rule about columns. Returns its pattern, and whether it lets them in."""
        if not self._text or self._text.startswith("#"):
            return None
        positive = self._sign()
        pattern = self._pattern()
        if self._at < len(self._text):
            raise self._error("unexpected text after the column pattern")
        return pattern, positive

    def _sign(self) -> bool:
        """Parse an optional `!`. Returns whether the rule lets names in."""
        if "\n" in self._text or "\r" in self._text:
            raise self._error("a rule has to be on one line")
        if self._text.startswith("@"):
            raise self._error("rules cannot be imported from a file here; write them into the configuration")
        positive = not self._text.startswith("!")
        self._at = 0 if positive else 1
        return positive

    def _error(self, what: str) -> ConfigError:
        return ConfigError(f"{self._where} {cut(self._text)!r}: column {self._at + 1}: {what}")

    def _pattern(self) -> GoRegex:
        first = self._text[self._at : self._at + 1]
        if first == "/":
            return self._regex()
        if first in ('"', "`"):
            return self._quoted(first)
        return self._wildcard()

    def _quoted(self, quote: str) -> GoRegex:
        match = _QUOTED[quote].match(self._text, self._at)
        if not match:
            raise self._error("the quoted name has no end, or is empty")
        self._at = match.end()
        if self._at < len(self._text) and self._text[self._at] != ".":
            raise self._error("a name is quoted as a whole or not at all")
        return self._whole(go_literal(match[1].replace(quote * 2, quote)))

    def _wildcard(self) -> GoRegex:
        start, pieces = self._at, []
        while self._at < len(self._text) and self._text[self._at] != ".":
            pieces.append(self._piece())
        if self._at == start:
            raise self._error("a pattern is missing")
        return self._whole("".join(pieces))

    def _piece(self) -> str:
        """Return the regular expression of the next character, escape, class or wildcard."""
        char = self._text[self._at]
        if char == "[":
            return self._class()
        if char == "\\":
            return self._escape()
        self._at += 1
        if char == "*":
            return ".*"
        if char == "?":
            return "."
        if _PLAIN.match(char):
            return go_literal(char)
        self._at -= 1
        raise self._error(f"unexpected character {char!r}; quote the name or put a \\ before it")

    def _escape(self) -> str:
        escaped = self._text[self._at + 1 : self._at + 2]
        if not escaped:
            raise self._error("nothing follows the \\")
        if escaped.isascii() and escaped.isalnum():
            raise self._error(f"\\{escaped} has no meaning: letters and digits cannot be escaped")
        self._at += 2
        return go_literal(escaped)

    def _class(self) -> str:
        match = _CLASS.match(self._text, self._at)
        if not match:
            raise self._error("the character class `[` has no end, or is empty")
        characters = re.findall(r"\\(.)|(.)", match[2])
        body = "".join("-" if plain == "-" else go_literal(escaped or plain) for escaped, plain in characters)
        try:
            GoRegex(f"[{body}]")
        except ConfigError:
            raise self._error("the character class has a range that ends before it begins") from None
        self._at = match.end()
        return f"[{'^' if match[1] else ''}{body}]"

    def _regex(self) -> GoRegex:
        match = _REGEX.match(self._text, self._at)
        if not match:
            raise self._error("the regular expression has no closing `/`, or is empty")
        try:
            compiled = GoRegex(match[1], self._fold)
        except ConfigError as error:
            raise self._error(error.message) from None
        self._at = match.end()
        return compiled

    def _whole(self, pattern: str) -> GoRegex:
        return GoRegex(rf"(?s)\A(?:{pattern})\z", self._fold)
