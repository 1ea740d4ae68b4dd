"""SQL text to tokens, by the rules of TiDB's scanner."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass

from tidemill.tidb.sql.errors import DdlSyntaxError
from tidemill.tidb.sql.keywords import BUILTIN_FUNCTIONS, FEATURES, INTRODUCERS, RESERVED, UNRESERVED, words


class SqlMode(enum.IntFlag, boundary=enum.KEEP):
    """The bits of a DDL job's sql_mode that change how text is read."""

    REAL_AS_FLOAT = 1 << 0
    PIPES_AS_CONCAT = 1 << 1
    ANSI_QUOTES = 1 << 2
    IGNORE_SPACE = 1 << 3
    NO_BACKSLASH_ESCAPES = 1 << 20
    HIGH_NOT_PRECEDENCE = 1 << 29


class Kind(enum.Enum):
    """The kind of a token."""

    NAME = "name"  # an identifier: quoted, or a word without meaning
    WORD = "word"  # a keyword as written; `upper` is its canonical form
    STRING = "string"
    INT = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    HEX = "hexadecimal literal"
    BIT = "bit literal"
    INTRODUCER = "character set introducer"
    USER_VARIABLE = "user variable"
    SYSTEM_VARIABLE = "system variable"
    HINT = "optimizer hint"
    OPERATOR = "operator"
    END = "end of statement"


@dataclass(frozen=True, slots=True)
class Token:
    """A token. Keywords and operators are compared by `upper`."""

    kind: Kind
    text: str  # names and strings: the value, unescaped; else as written
    position: int
    upper: str = ""  # keywords and operators: what the grammar compares with
    reserved: bool = False
    adjacent_paren: bool = False  # the next character is "("


_BLANKS = re.compile(r"[ \t\n\v\f\r]+")
_WORD = re.compile(r"[A-Za-z0-9_$\u0080-\U0010ffff]+")
_VARIABLE = re.compile(r"[A-Za-z0-9_$.\u0080-\U0010ffff]+")
_NUMBER = re.compile(r"\d*(?:\.\d*)?(?:[eE][-+]?\d+)?")
_LINE_COMMENT = re.compile(r"(?:#|--(?=[ \t\n\v\f\r]|$))[^\n]*")
_OPERATOR = re.compile(r"<=>|\|\||&&|&\^|:=|>=|<=|!=|<>|<<|>>|->>|->|\\N|[-+*/%=<>()\[\];,&:|!^~?{}.]")
_HEX = re.compile(r"[xX]'([0-9A-Fa-f]*)'")
_BIT = re.compile(r"[bB]'([01]*)'")
_FEATURE_LIST = re.compile(r"\[([A-Za-z0-9_$\u0080-\U0010ffff]+(?:,[A-Za-z0-9_$\u0080-\U0010ffff]+)*)\]")
_ESCAPES = {"n": "\n", "0": "\0", "b": "\b", "Z": "\x1a", "r": "\r", "t": "\t", "%": "\\%", "_": "\\_"}
_DIGITS = tuple("0123456789")
_HINTED = words("SELECT INSERT REPLACE UPDATE DELETE CREATE PARTITION")


def tokenize(sql: str, mode: SqlMode, *, printed: bool = False) -> list[Token]:
    """Return all tokens of a text, with one END token last.

    `printed`: TiDB's parser printed the text. It doubles the backslashes of values and of the comments of columns, not those of other
    strings (elements of ENUM and SET, comments of tables, partitions and indexes, options), so there a backslash stands for itself.
    """
    return (_PrintedLexer if printed else _Lexer)(sql, mode).run()


class _Lexer:
    """The scanner's state while it goes through a text."""

    def __init__(self, sql: str, mode: SqlMode) -> None:
        self.sql = sql
        self.mode = mode
        self.at = 0
        self.tokens: list[Token] = []
        self.in_executable_comment = False
        self.after_name_dot = False  # the last identifier was followed by a dot: digits start a name now

    def run(self) -> list[Token]:
        """Return all tokens."""
        while self.skip_blanks_and_comments():
            self.scan_token()
        self.emit(Kind.END, "", len(self.sql))
        return self.tokens

    def emit(self, kind: Kind, text: str, position: int, upper: str = "", reserved: bool = False) -> None:
        """Add a token that ends here."""
        paren = self.sql.startswith("(", self.at)
        self.tokens.append(Token(kind, text, position, upper, reserved, paren))

    def fail(self, what: str) -> DdlSyntaxError:
        return DdlSyntaxError(what, self.at)

    # Blanks and comments

    def skip_blanks_and_comments(self) -> bool:
        """Move to the next token. Returns False at the end of the text."""
        while self.at < len(self.sql):
            if blank := _BLANKS.match(self.sql, self.at) or _LINE_COMMENT.match(self.sql, self.at):
                self.at = blank.end()
            elif self.in_executable_comment and self.sql.startswith("*/", self.at):
                self.in_executable_comment = False
                self.at += 2
            elif self.sql.startswith("/*", self.at):
                if not self.enter_comment():
                    return True
            else:
                return True
        return False

    def enter_comment(self) -> bool:
        """Skip a comment, or only its head when TiDB executes its content. Returns False when it is a hint token."""
        sql, start = self.sql, self.at
        if sql.startswith("/*!", start):
            self.at += 8 if re.match(r"\d{5}", sql[start + 3 : start + 8]) else 3
            self.in_executable_comment = True
            return True
        if sql.startswith("/*T!", start):
            features = _FEATURE_LIST.match(sql, start + 4)
            if features is None or FEATURES.issuperset(features[1].split(",")):
                self.at = features.end() if features else start + 4
                self.in_executable_comment = True
                return True
        end = sql.find("*/", start + 2)
        if end < 0:
            raise self.fail("unclosed comment")
        if sql.startswith("/*+", start) and self.tokens and self.tokens[-1].upper in _HINTED:
            return False
        self.at = end + 2
        return True

    # Tokens

    def scan_token(self) -> None:
        """Read one token."""
        sql, start = self.sql, self.at
        char = sql[start]
        if sql.startswith("/*+", start):
            self.at = sql.index("*/", start) + 2
            self.emit(Kind.HINT, sql[start : self.at], start)
        elif char in "'\"":
            text = self.read_string(char)
            if char == '"' and SqlMode.ANSI_QUOTES in self.mode:
                self.emit_name(text, start)
            else:
                self.emit(Kind.STRING, text, start)
        elif char == "`":
            self.emit_name(self.read_quoted_name(), start)
        elif char in "xX" and sql.startswith("'", start + 1):
            self.scan_pattern(_HEX, Kind.HEX)
        elif char in "bB" and sql.startswith("'", start + 1):
            self.scan_pattern(_BIT, Kind.BIT)
        elif char in "nN" and sql.startswith("'", start + 1):
            self.at += 1
            self.emit(Kind.INTRODUCER, "utf8", start)
        elif char == "@":
            self.scan_variable()
        elif char.isascii() and char.isdigit():
            self.scan_number()
        elif char == "." and not self.after_name_dot and sql[start + 1 : start + 2] in _DIGITS:
            self.scan_float()
        elif match := _WORD.match(sql, start):
            self.at = match.end()
            self.scan_word(match[0], start)
        elif match := _OPERATOR.match(sql, start):
            self.at = match.end()
            if char == "*":
                self.after_name_dot = False
            if match[0] == "\\N":
                self.emit(Kind.WORD, "NULL", start, "NULL", reserved=True)
            else:
                self.emit(Kind.OPERATOR, match[0], start, match[0])
        else:
            raise self.fail(f"unexpected character {char!r}")

    def emit_name(self, text: str, start: int) -> None:
        """Add a name. Digits after its dot are a name too."""
        self.after_name_dot = self.sql.startswith(".", self.at)
        self.emit(Kind.NAME, text, start)

    def scan_word(self, word: str, start: int) -> None:
        """Read a word: an introducer, a part of a qualified name, a keyword or a name."""
        if word.startswith("_") and word[1:].lower() in INTRODUCERS:
            charset = word[1:].lower()
            self.emit(Kind.INTRODUCER, "utf8" if charset == "utf8mb3" else charset, start)
            return
        # A word next to a dot is part of a qualified name, never a keyword.
        before = start - 1
        while before > 0 and self.sql[before] == " ":
            before -= 1
        if self.sql.startswith(".", self.at) or (before >= 0 and self.sql[before] == "."):
            self.emit_name(word, start)
            return
        upper = word.upper() if word.isascii() else word
        after = self.at
        if SqlMode.IGNORE_SPACE in self.mode and (blank := _BLANKS.match(self.sql, after)):
            after = blank.end()
        if upper in BUILTIN_FUNCTIONS and self.sql.startswith("(", after):
            self.at = after
            self.emit(Kind.WORD, word, start, upper, reserved=True)
        elif upper in RESERVED or upper in UNRESERVED:
            self.emit(Kind.WORD, word, start, upper, reserved=upper in RESERVED)
        else:
            self.emit_name(word, start)

    def scan_pattern(self, pattern: re.Pattern[str], kind: Kind) -> None:
        """Read x'…' or b'…'."""
        match = pattern.match(self.sql, self.at)
        if match is None or (kind is Kind.HEX and len(match[1]) % 2):
            raise self.fail(f"malformed {kind.value}")
        start, self.at = self.at, match.end()
        self.emit(kind, match[1], start)

    def scan_number(self) -> None:
        """Read a number, or a name that starts with digits."""
        sql, start = self.sql, self.at
        word = _WORD.match(sql, start)
        assert word is not None
        if self.after_name_dot:
            self.at = word.end()
            self.scan_word(word[0], start)
            return
        for prefix, digits, kind in (("0x", "0123456789abcdefABCDEF", Kind.HEX), ("0b", "01", Kind.BIT)):
            if sql.startswith((prefix, "0X") if prefix == "0x" else prefix, start):
                end = start + 2
                while end < len(sql) and sql[end] in digits:
                    end += 1
                if sql.startswith((".", "e", "E"), end) or (sql[start + 1] == "X" and word.end() == end):
                    raise self.fail(f"malformed {kind.value}")
                if end == start + 2 or word.end() > end:
                    self.at = word.end()
                    self.scan_word(word[0], start)
                    return
                self.at = end
                text = sql[start + 2 : end]
                self.emit(kind, "0" + text if kind is Kind.HEX and len(text) % 2 else text, start)
                return
        end = start
        while end < len(sql) and sql[end] in "0123456789":
            end += 1
        if sql[end : end + 1] in (".", "e", "E") and end < len(sql):
            self.scan_float()
        elif word.end() > end:
            self.at = word.end()
            self.scan_word(word[0], start)
        else:
            self.at = end
            self.emit(Kind.INT, sql[start:end], start)

    def scan_float(self) -> None:
        """Read a number with a point or an exponent, or a name such as 9est."""
        sql, start = self.sql, self.at
        match = _NUMBER.match(sql, start)
        assert match is not None
        text = match[0]
        if "e" in text.lower():
            self.at = match.end()
            self.emit(Kind.FLOAT, text, start)
        elif sql[match.end() : match.end() + 1] in ("e", "E") and match.end() < len(sql):
            word = _WORD.match(sql, start)  # 9est is a name
            if word is None:
                raise self.fail("malformed number")
            self.at = word.end()
            self.scan_word(word[0], start)
        else:
            self.at = match.end()
            self.emit(Kind.DECIMAL, text, start)

    def scan_variable(self) -> None:
        """Read @name, @@name or a quoted form."""
        start = self.at
        self.at += 1
        system = self.sql.startswith("@", self.at)
        if system:
            self.at += 1
            scope = re.compile(r"(?:global|session|local)\.", re.IGNORECASE).match(self.sql, self.at)
            prefix = scope[0] if scope else ""
            self.at += len(prefix)
        char = self.sql[self.at : self.at + 1]
        if char and char in "'\"":
            name = self.read_string(char)
        elif char == "`":
            name = self.read_quoted_name()
        elif match := _VARIABLE.match(self.sql, self.at):
            self.at = match.end()
            name = match[0]
        else:
            name = ""
        if not system:
            self.emit(Kind.USER_VARIABLE, name, start)
        elif name:
            self.emit(Kind.SYSTEM_VARIABLE, prefix + name, start)
        else:
            raise self.fail("malformed system variable")

    # Quoted text

    def read_string(self, quote: str) -> str:
        """Read the string that begins here, and return its value."""
        backslash = SqlMode.NO_BACKSLASH_ESCAPES not in self.mode
        return self.read_quoted(quote, self.read_escape if backslash else None)

    def read_quoted_name(self) -> str:
        """Read the name in backquotes that begins here."""
        return self.read_quoted("`", None)

    def read_quoted(self, quote: str, escape: Callable[[], str] | None) -> str:
        """Read the text between quotes. A doubled quote is one quote."""
        sql, start = self.sql, self.at
        parts: list[str] = []
        self.at += 1
        while self.at < len(sql):
            char = sql[self.at]
            self.at += 1
            if char == quote:
                if not sql.startswith(quote, self.at):
                    return "".join(parts)
                self.at += 1
                parts.append(quote)
            elif char == "\\" and escape is not None:
                parts.append(escape())
            else:
                parts.append(char)
        raise DdlSyntaxError("unclosed quote", start)

    def read_escape(self) -> str:
        """Read a backslash and the next character, and return what they stand for."""
        char = self.sql[self.at : self.at + 1]
        self.at += 1
        return _ESCAPES.get(char, char)


_SPECS_OF_COLUMNS = frozenset({"ADD", "MODIFY", "CHANGE"})
_LISTS = frozenset({"ENUM", "SET", "LABELS"})
"""Words before lists of strings that are no values."""


class _PrintedLexer(_Lexer):
    """The scanner for texts that TiDB printed: all names are in backquotes, and all values have an introducer."""

    list_end = -1  # the place of the last string of a list among the tokens

    def read_string(self, quote: str) -> str:
        """Read the string that begins here, and return its value."""
        return self.read_quoted(quote, self.read_escape if self.is_value() else None)

    def is_value(self) -> bool:
        """Return whether backslashes are doubled in the string that begins here."""
        before = self.tokens[-1].upper if self.tokens else ""
        if before == "COMMENT":
            return self.is_of_column()
        return before != "=" and not self.is_in_list()

    def is_in_list(self) -> bool:
        """Return whether the string that begins here is one of those after ENUM(, SET( or LABELS."""
        end, before = len(self.tokens), self.tokens[-2:]
        head = before[-1:] if before and before[-1].upper != "(" else before[:1]
        goes_on = self.list_end == end - 2 and before[-1].upper == ","
        if goes_on or (head and head[0].upper in _LISTS):
            self.list_end = end
            return True
        return False

    def is_of_column(self) -> bool:
        """Return whether the COMMENT before is that of a column: what it belongs to begins with the column's name."""
        tokens, at, depth = self.tokens, len(self.tokens) - 1, 0
        while at > 0:
            upper = tokens[at - 1].upper
            if not depth and upper in ("(", ","):
                break
            depth += (upper == ")") - (upper == "(")
            at -= 1
        if tokens[at].upper == "ALTER":  # TABLE `s`.`t`
            at += 2
            while at < len(tokens) - 1 and (tokens[at].kind is Kind.NAME or tokens[at].upper == "."):
                at += 1
        return tokens[at].kind is Kind.NAME or (tokens[at].upper in _SPECS_OF_COLUMNS and tokens[at + 1].upper == "COLUMN")
