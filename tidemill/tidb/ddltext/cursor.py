"""A position in a list of tokens, and the small pieces of grammar that every part uses."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Self, TypeVar

from tidemill.tidb.ddltext.dialects import TICDC, Dialect, Part
from tidemill.tidb.ddltext.names import Name, Names
from tidemill.tidb.ddltext.queries.literals import (
    print_bits,
    print_decimal,
    print_float,
    print_hex,
    print_integer,
    quote_text,
    quote_value,
    whole_number,
)
from tidemill.tidb.names import quote_name
from tidemill.tidb.sql.errors import DdlSyntaxError, DdlTooComplex
from tidemill.tidb.sql.keywords import CHARSETS, INTRODUCERS, TIME_UNITS
from tidemill.tidb.sql.lexer import Kind, SqlMode, Token, tokenize

_COLLATION_ALIASES = {f"utf8mb3_{suffix}": f"utf8_{suffix}" for suffix in ("bin", "unicode_ci", "general_ci")}
T = TypeVar("T")
STEPS, STEPS_A_TOKEN = 2000, 40
"""The steps that a statement may take, and those added for each of its tokens. Real statements take fewer than five a token."""

_NUMBERS = {Kind.INT: print_integer, Kind.DECIMAL: print_decimal, Kind.FLOAT: print_float}


_DIGITS = 40
"""More than a number has that anything is printed of. Python itself reads 4,300."""


class Cursor:
    """A position in a list of tokens. Every parsing method consumes what it recognises and returns the text TiDB prints for it.

    `accept…` methods return a falsy value and consume nothing when the input is something else. The others raise DdlSyntaxError.
    """

    def __init__(
        self,
        sql: str,
        mode: SqlMode,
        charset: str,
        collate: str,
        names: Names | None = None,
        dialect: Dialect = TICDC,
        *,
        printed: bool = False,
    ) -> None:
        """`printed`: the text is one that TiDB printed, see `sql.lexer`."""
        self.tokens = tokenize(sql, mode, printed=printed)
        self.names = names or Names()
        self.dialect = dialect
        self.index = 0
        self.mode = mode
        self.charset = charset
        self.collate = collate
        self.common_tables: set[str] = set()  # names that WITH defined, in lower case
        self.steps = 0  # steps taken: they bound the work that a text can ask for
        self._read: dict[Hashable, tuple[Any, int]] = {}
        self._opening = range(0)  # the last run of opening parentheses that was counted

    # Work

    def spend(self, steps: int = 1) -> None:
        """Count steps of work. Raises DdlTooComplex."""
        self.steps += steps
        if self.steps > STEPS + STEPS_A_TOKEN * len(self.tokens):
            raise DdlTooComplex(f"more than {self.steps - 1} steps to read {len(self.tokens)} words", self.token.position)

    def once(self, what: Hashable, parse: Callable[[Self], T]) -> T:
        """Return the result of `parse` at this position, and remember it under `what`. Attempts around it may fail and start again: without
        the memory the work would double with each level of nesting."""
        key = what, self.index, len(self.common_tables)
        if key not in self._read:
            try:
                self._read[key] = parse(self), self.index
            except DdlSyntaxError as error:
                self._read[key] = error, self.index
                raise
            return self._read[key][0]  # type: ignore[no-any-return]
        found, self.index = self._read[key]
        if isinstance(found, DdlSyntaxError):
            raise found.with_traceback(None)
        return found  # type: ignore[no-any-return]

    # Tokens

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.index]

    def peek(self, offset: int = 1) -> Token:
        """Return the token at an offset from here. Past the last token it is END."""
        return self.tokens[min(self.index + offset, len(self.tokens) - 1)]

    def next(self) -> Token:
        """Take the next token. END is never consumed."""
        token = self.token
        self.spend()
        if token.kind is not Kind.END:
            self.index += 1
        return token

    def fail(self, expected: str) -> DdlSyntaxError:
        """Return an error that says what was expected here."""
        found = repr(self.token.text) if self.token.kind is not Kind.END else "the end"
        return DdlSyntaxError(f"expected {expected}, found {found}", self.token.position)

    def at(self, *words: str) -> bool:
        """Return whether the next tokens are these keywords or operators."""
        if self.token.upper != words[0]:  # nearly always
            return False
        return len(words) == 1 or all(self.peek(offset).upper == word for offset, word in enumerate(words))

    def at_end(self) -> bool:
        """Return whether no token is left."""
        return self.token.kind is Kind.END

    def at_any(self, words: Iterable[str]) -> bool:
        """Return whether the next token is one of these keywords."""
        return self.token.upper in words and self.token.upper != ""

    def opened(self) -> int:
        """Return how many opening parentheses follow. Each run is counted once, however often this is called inside it."""
        if self.index not in self._opening:
            end = self.index
            while self.tokens[end].upper == "(":
                end += 1
            self._opening = range(self.index, end)
        return self._opening.stop - self.index

    def accept(self, *words: str) -> bool:
        """Take these keywords if all of them follow. Returns whether they do."""
        if not self.at(*words):
            return False
        self.spend()
        self.index += len(words)
        return True

    def accept_any(self, words: Iterable[str]) -> str:
        """Take one of these keywords and return it, or "" when none follows."""
        return self.next().upper if self.at_any(words) else ""

    def expect(self, *words: str) -> None:
        """Take these keywords."""
        if not self.accept(*words):
            raise self.fail(" ".join(words))

    def expect_any(self, words: Iterable[str]) -> str:
        """Take one of these keywords."""
        word = self.accept_any(words)
        if not word:
            raise self.fail("one of " + ", ".join(sorted(words)))
        return word

    def expect_kind(self, *kinds: Kind) -> Token:
        """Take a token of one of these kinds."""
        if self.token.kind not in kinds:
            raise self.fail(" or ".join(kind.value for kind in kinds))
        return self.next()

    def try_parse(self, parse: Callable[[], T]) -> T | None:
        """Return the result of `parse`, or None with nothing consumed when it fails."""
        start = self.index
        try:
            return parse()
        except DdlTooComplex:
            raise
        except DdlSyntaxError:
            self.index = start
            return None

    def list_of(self, parse: Callable[[], str], separator: str = ", ") -> str:
        """Parse one or more items, separated by commas."""
        parts = [parse()]
        while self.accept(","):
            parts.append(parse())
        return separator.join(parts)

    def in_parentheses(self, parse: Callable[[], str], separator: str = ", ") -> str:
        """Parse a list in parentheses, printed with them."""
        self.expect("(")
        text = self.list_of(parse, separator)
        self.expect(")")
        return f"({text})"

    # Names

    def at_identifier(self) -> bool:
        """Return whether the next token is a name, or a keyword that may be one."""
        return self.token.kind is Kind.NAME or (self.token.kind is Kind.WORD and not self.token.reserved)

    def identifier(self) -> str:
        """Parse a name, and return it without quotes."""
        if not self.at_identifier():
            raise self.fail("a name")
        return self.next().text

    def name(self) -> str:
        """Parse a name, printed in backquotes."""
        return quote_name(self.identifier())

    def schema_name(self) -> str:
        """Parse the name of the schema that the statement is about."""
        return quote_name(self.names.schema(self.identifier()))

    def table_name(self) -> str:
        """Parse a table name with or without schema."""
        return printed_name(self.names.table(self.parse_table_name()))

    def parse_table_name(self) -> Name:
        """Parse a table name as it is written."""
        if self.at("*", "."):
            raise self.fail("a table name")
        first = self.identifier()
        if not self.accept("."):
            return "", first
        if not first or first.endswith(" "):
            raise self.fail("a correct schema name")
        return first, self.identifier()

    def column_name(self) -> str:
        """Parse a column name with or without table and schema."""
        parts = [self.identifier()]
        while len(parts) < 3 and self.accept("."):
            parts.append(self.identifier())
        if len(parts) == 3 and parts[1].lower() in self.common_tables:
            raise self.fail("no schema in front of a common table")  # TiDB leaves it out, or not, by scope
        return self.qualified(parts[:-1]) + quote_name(parts[-1])

    def qualified(self, parts: list[str]) -> str:
        """Return what stands before a column's name, or before `*`: the names of table and schema that were written, with a dot after
        each."""
        if not parts:
            return ""
        schema, table = self.names.qualifier((parts[0] if len(parts) > 1 else "", parts[-1]))
        return f"{printed_name((schema, table))}."

    def string_name(self) -> str:
        """Parse a name or a string, unquoted."""
        return self.next().text if self.token.kind is Kind.STRING else self.identifier()

    def charset_name(self) -> str:
        """Parse a character set that TiDB knows, in lower case."""
        if self.accept("BINARY"):
            return "binary"
        name = self.string_name().lower()
        if name == "utf8mb3":
            return "utf8"
        if name not in CHARSETS:
            raise DdlSyntaxError(f"unknown character set {name!r}", self.token.position)
        return name

    def collation_name(self) -> str:
        """Parse a collation, in lower case."""
        if self.accept("BINARY"):
            return "binary"
        name = self.string_name().lower()
        if name != "binary" and name.partition("_")[0] not in INTRODUCERS:
            raise DdlSyntaxError(f"unknown collation {name!r}", self.token.position)
        return self.dialect.part(Part.COLLATION, _COLLATION_ALIASES.get(name, name))

    def accept_charset_keyword(self) -> bool:
        """Take CHARACTER SET in one of its spellings. Returns whether it follows."""
        return self.accept("CHARACTER", "SET") or self.accept("CHARSET") or self.accept("CHAR", "SET")

    def user_name(self) -> str:
        """Parse an account: user@host or CURRENT_USER."""
        if self.accept("CURRENT_USER"):
            if self.accept("("):
                self.expect(")")
            return "CURRENT_USER"
        user = quote_name(self.string_name())
        if self.token.kind is not Kind.USER_VARIABLE:
            return f"{user}@`%`"
        host = self.next().text.lower()
        return f"{user}@{quote_name(host)}" if host else user

    # Literals

    def raw_string(self) -> str:
        """Parse a string, and return its value."""
        return self.expect_kind(Kind.STRING).text

    def text(self) -> str:
        """Parse a string that belongs to the grammar, not a value."""
        return self.quoted(self.raw_string())

    def quoted(self, text: str) -> str:
        """Return a string that belongs to the grammar. TiDB prints its backslashes as they are, though it reads them as escapes."""
        return quote_value(text) if self.dialect.exact else quote_text(text)

    @property
    def value_charset(self) -> str:
        """The character set that is printed before strings without one: the job's. Exact texts are read as UTF-8."""
        return "utf8mb4" if self.dialect.exact and self.charset not in ("", "binary") else self.charset

    def plain_string(self) -> str:
        """Parse a string value that is printed without a character set."""
        return quote_value(self.raw_string())

    def unsigned(self) -> int:
        """Parse a number of 64 bits."""
        token = self.expect_kind(Kind.INT)
        value = whole_number(token.text)
        if value >= 2**64:
            raise DdlSyntaxError("a number out of range", token.position)
        return value

    def positive(self) -> int:
        """Parse an unsigned number that fits into a signed one."""
        value = self.unsigned()
        if value >= 2**63:
            raise self.fail("a number in the range of BIGINT")
        return value

    def signed(self) -> int:
        """Parse a whole number with a sign."""
        sign = self.accept_any(("+", "-"))
        value = self.unsigned()
        if value > 2**63 - (sign != "-"):
            raise self.fail("a number in the range of BIGINT")
        return -value if sign == "-" else value

    def number(self) -> str:
        """Parse a number, printed as TiDB prints it."""
        token = self.expect_kind(*_NUMBERS)
        try:
            return _NUMBERS[token.kind](token.text)
        except ValueError as error:
            raise DdlSyntaxError(str(error), token.position) from None

    def accept_literal(self) -> str:
        """Parse NULL, TRUE, FALSE, a number, a string with its character set, hexadecimal or bits."""
        token = self.token
        if word := self.accept_any(("NULL", "TRUE", "FALSE")):
            return word
        if token.kind in _NUMBERS:
            return self.number()
        if token.kind is Kind.STRING:
            return self.string_value(self.value_charset)
        if token.kind is Kind.HEX:
            return print_hex(self.next().text)
        if token.kind is Kind.BIT:
            return print_bits(self.next().text)
        if token.kind is not Kind.INTRODUCER:
            return ""
        self.next()
        if token.text not in CHARSETS or token.text in ("gbk", "gb18030"):
            raise DdlSyntaxError(f"unsupported character set introducer {token.text!r}", token.position)
        if self.token.kind in (Kind.HEX, Kind.BIT):
            return self.accept_literal()  # TiDB does not print the introducer
        return f"_{token.text.upper()}{self.plain_string()}"

    def string_value(self, charset: str) -> str:
        """Parse one string, or several next to each other, which are joined."""
        text = self.raw_string()
        while self.token.kind is Kind.STRING:
            text += self.raw_string()
        return f"_{charset.upper()}{quote_value(text)}" if charset else quote_value(text)

    def literal(self) -> str:
        """Parse a literal."""
        text = self.accept_literal()
        if not text:
            raise self.fail("a literal")
        return text

    def accept_time_unit(self) -> str:
        """Parse DAY, SQL_TSI_DAY and the like."""
        return TIME_UNITS[self.next().upper] if self.at_any(TIME_UNITS) else ""

    def time_unit(self) -> str:
        """Parse a unit of time."""
        unit = self.accept_time_unit()
        if not unit:
            raise self.fail("a time unit")
        return unit


def printed_name(name: Name) -> str:
    """Return a table's name in backquotes, with its schema if there is one."""
    return f"{quote_name(name[0])}.{quote_name(name[1])}" if name[0] else quote_name(name[1])
