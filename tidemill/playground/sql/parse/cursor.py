"""A place in a tokenized statement, with what a recursive-descent parser asks of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tidemill.errors import SqlError
from tidemill.tidb.sql.errors import DdlSyntaxError
from tidemill.tidb.sql.lexer import Kind, SqlMode, Token, tokenize

T = TypeVar("T")


def split_statements(sql: str) -> list[str]:
    """The statements of a text, without their semicolons.

    Raises SqlError.
    """
    tokens = _tokenize(sql)
    statements, start = [], 0
    for token in tokens:
        if token.kind is Kind.OPERATOR and token.text == ";":
            statements.append(sql[start : token.position])
            start = token.position + 1
    statements.append(sql[start:])
    return [text.strip() for text in statements if text.strip()]


def _tokenize(sql: str) -> list[Token]:
    try:
        return tokenize(sql, SqlMode(0))
    except DdlSyntaxError as error:
        raise SqlError(f"the statement cannot be read: {error}") from error


class Cursor:
    """Tokens of one statement and a position among them. What does not fit raises SqlError with the place."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self._tokens = _tokenize(sql)
        self._words = [self._word(token) for token in self._tokens]
        self._at = 0

    def _word(self, token: Token) -> str:
        """What the grammar compares a token with; empty for quoted names, strings and numbers."""
        if token.kind is Kind.NAME:
            return "" if self.sql[token.position] == "`" else token.text.upper()
        return token.upper if token.kind in (Kind.WORD, Kind.OPERATOR) else ""

    @property
    def token(self) -> Token:
        """The next token."""
        return self._tokens[self._at]

    def peek(self, offset: int = 1) -> Token:
        """A later token."""
        return self._tokens[min(self._at + offset, len(self._tokens) - 1)]

    def advance(self) -> Token:
        """Take the next token."""
        token = self.token
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def fail(self, expected: str) -> SqlError:
        """The error that something else was expected here."""
        near = self.sql[self.token.position : self.token.position + 40]
        return SqlError(f"expected {expected} at {near!r}" if near else f"expected {expected} at the end of the statement")

    def at(self, *words: str) -> bool:
        """Whether these keywords or operators follow."""
        at = self._at
        return self._words[at] == words[0] and self._words[at : at + len(words)] == list(words)

    def accept(self, *words: str) -> bool:
        """Take these keywords or operators if they follow."""
        if not self.at(*words):
            return False
        self._at = min(self._at + len(words), len(self._tokens) - 1)
        return True

    def accept_any(self, *words: str) -> str:
        """Take one of these words; empty if none follows."""
        word = self._words[self._at]
        if word and word in words:
            self._at = min(self._at + 1, len(self._tokens) - 1)
            return word
        return ""

    def expect(self, *words: str) -> None:
        """Take these words."""
        for word in words:
            if not self.accept(word):
                raise self.fail(word)

    def at_end(self) -> bool:
        """Whether the statement is over."""
        return self.token.kind is Kind.END or self.at(";")

    def name(self) -> str:
        """An identifier; words that are not reserved may be names."""
        token = self.token
        if token.kind is Kind.NAME or (token.kind is Kind.WORD and not token.reserved):
            self.advance()
            return token.text
        raise self.fail("a name")

    def integer(self) -> int:
        """An unsigned integer."""
        if self.token.kind is not Kind.INT:
            raise self.fail("a number")
        return int(self.advance().text)

    def string(self) -> str:
        """A quoted string."""
        if self.token.kind is not Kind.STRING:
            raise self.fail("a string")
        return self.advance().text

    def word_or_string(self) -> str:
        """A bare word or a string, such as the name of a charset."""
        if self.token.kind in (Kind.STRING, Kind.NAME, Kind.WORD):
            return self.advance().text
        raise self.fail("a word")

    def list_of(self, parse: Callable[[], T]) -> tuple[T, ...]:
        """One or more, separated by commas."""
        found = [parse()]
        while self.accept(","):
            found.append(parse())
        return tuple(found)

    def in_parentheses(self, parse: Callable[[], T]) -> tuple[T, ...]:
        """A list in parentheses, not empty."""
        self.expect("(")
        found = self.list_of(parse)
        self.expect(")")
        return found
