"""Parses an expression's text to a tree, by TiDB's grammar and precedence. Anything but a condition on one row is refused."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from math import isfinite

from tidemill.budget import current
from tidemill.errors import ConfigError
from tidemill.rules.expressions.arithmetic import MASK64, MAX_SCALE, negative, whole
from tidemill.rules.expressions.functions import FUNCTIONS, UNSTABLE
from tidemill.rules.expressions.tree import Call, Cast, Column, Literal, Node
from tidemill.rules.expressions.values import BINARY, Choice, Text, Value, parse_decimal, parse_moment, parse_span
from tidemill.rules.names import did_you_mean
from tidemill.tidb.sql.errors import DdlSyntaxError
from tidemill.tidb.sql.lexer import Kind, SqlMode, Token, tokenize

_COMPARISONS = ("=", "<=>", ">=", ">", "<=", "<", "<>", "!=")
_LEVELS: tuple[tuple[str, ...], ...] = (("|",), ("&",), ("<<", ">>"), ("+", "-"), ("*", "/", "DIV", "%", "MOD"), ("^",))
_CASTS = {
    "SIGNED": "SIGNED", "UNSIGNED": "UNSIGNED", "CHAR": "CHAR", "BINARY": "BINARY", "DECIMAL": "DECIMAL", "DOUBLE": "DOUBLE",
    "FLOAT": "DOUBLE", "REAL": "DOUBLE", "DATE": "DATE", "DATETIME": "DATETIME",
}  # fmt: skip
_NAMED_LIKE_KEYWORDS = {"IF", "LEFT", "RIGHT", "MOD", "REPLACE", "YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "DATE", "TRUNCATE"}
_DEPTH = 32
_MAX_PRECISION = 65


def parse(text: str) -> Node:
    """Parse an expression. Raises ConfigError that says what was expected, and where; OverBudget."""
    current().spend("conditions", len(text))
    try:
        tokens = tokenize(text, SqlMode(0))
    except DdlSyntaxError as error:
        raise ConfigError(f"{text!r}: {error}") from None
    return _Parser(text, tokens).whole()


class _Parser:
    """Reads tokens from left to right."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self._text, self._tokens = text, tokens
        self._at = 0
        self._depth = 0

    def whole(self) -> Node:
        node = self._or()
        if self._token.kind is not Kind.END:
            raise self._error("an operator or the end")
        return node

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _error(self, expected: str) -> ConfigError:
        token = self._token
        found = "the end" if token.kind is Kind.END else repr(token.text)
        return ConfigError(f"{self._text!r}: at character {token.position + 1}: expected {expected}, found {found}")

    def _refusal(self, what: str) -> ConfigError:
        return ConfigError(f"{self._text!r}: {what}")

    def _is(self, *words: str) -> bool:
        token = self._token
        return token.kind in (Kind.WORD, Kind.OPERATOR, Kind.NAME) and (token.upper or token.text.upper()) in words

    def _accept(self, *words: str) -> str:
        if self._token.kind is Kind.NAME and not self._plain_name():
            return ""
        if not self._is(*words):
            return ""
        found = self._token.upper or self._token.text.upper()
        self._at += 1
        return found

    def _plain_name(self) -> bool:
        """Return whether the next token is a name without quotes."""
        return self._text[self._token.position : self._token.position + 1] != "`"

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise self._error(f"`{word}`")

    # From the weakest operator to the strongest

    def _or(self) -> Node:
        self._depth += 1
        if self._depth > _DEPTH:
            raise self._refusal("it is nested too deeply")
        node = self._left(self._xor, "OR", "||")
        self._depth -= 1
        return node

    def _xor(self) -> Node:
        return self._left(self._and, "XOR")

    def _and(self) -> Node:
        return self._left(self._not, "AND", "&&")

    def _left(self, below: Callable[[], Node], *words: str) -> Node:
        node = below()
        while word := self._accept(*words):
            node = Call({"||": "OR", "&&": "AND"}.get(word, word), (node, below()))
        return node

    def _not(self) -> Node:
        nots = 0
        while self._accept("NOT"):
            nots += 1
        node = self._comparison()
        for _ in range(nots):
            node = Call("NOT", (node,))
        return node

    def _comparison(self) -> Node:
        node = self._predicate()
        while True:
            if word := self._accept(*_COMPARISONS):
                node = Call("<>" if word == "!=" else word, (node, self._predicate()))
            elif self._accept("IS"):
                node = self._is_what(node)
            else:
                return node

    def _is_what(self, node: Node) -> Node:
        negated = bool(self._accept("NOT"))
        word = self._accept("NULL", "TRUE", "FALSE", "UNKNOWN")
        if not word:
            raise self._error("NULL, TRUE, FALSE or UNKNOWN")
        found = Call("IS NULL" if word == "UNKNOWN" else f"IS {word}", (node,))
        return Call("NOT", (found,)) if negated else found

    def _predicate(self) -> Node:
        node = self._bits()
        at = self._at
        negated = bool(self._accept("NOT"))
        found: Node
        if self._accept("IN"):
            found = Call("IN", (node, *self._list()))
        elif self._accept("BETWEEN"):
            low = self._bits()
            self._expect("AND")
            found = Call("BETWEEN", (node, low, self._predicate()))
        elif self._accept("LIKE"):
            found = Call("LIKE", (node, self._bits(), *self._escape()))
        elif self._accept("REGEXP", "RLIKE"):
            found = Call("REGEXP", (node, self._bits()))
        else:
            self._at = at
            return node
        return Call("NOT", (found,)) if negated else found

    def _escape(self) -> tuple[Node, ...]:
        return (self._bits(),) if self._accept("ESCAPE") else ()

    def _list(self) -> tuple[Node, ...]:
        self._expect("(")
        items = [self._or()]
        while self._accept(","):
            items.append(self._or())
        self._expect(")")
        return tuple(items)

    def _bits(self, level: int = 0) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        node = self._bits(level + 1)
        while word := self._accept(*_LEVELS[level]):
            node = Call("%" if word == "MOD" else word, (node, self._bits(level + 1)))
        return node

    def _unary(self) -> Node:
        if self._accept("-"):
            operand = self._unary()
            if isinstance(operand, Literal) and isinstance(operand.value, (int, float, Decimal)):
                found = operand.value
                return Literal(whole(Decimal(-found)) if isinstance(found, int) else negative(found))
            return Call("NEGATE", (operand,))
        if self._accept("+"):
            return self._unary()
        if word := self._accept("!", "~"):
            return Call("NOT" if word == "!" else word, (self._unary(),))
        if self._is("BINARY") and self._token.kind is Kind.WORD:
            self._at += 1
            return Cast(self._unary(), "BINARY")
        return self._operand()

    def _operand(self) -> Node:
        token = self._token
        if self._accept("("):
            node = self._or()
            self._expect(")")
            return node
        literal = self._literal()
        if literal is not None:
            return literal
        if token.kind in (Kind.USER_VARIABLE, Kind.SYSTEM_VARIABLE):
            raise self._refusal(f"variables such as {token.text!r} have no value here")
        if self._is("SELECT", "EXISTS"):
            raise self._refusal("a condition is about one row: subqueries are not possible")
        if token.kind is Kind.WORD and token.upper == "CASE":
            return self._case()
        if token.kind is Kind.WORD and token.upper in ("CAST", "CONVERT"):
            return self._cast()
        if token.kind in (Kind.NAME, Kind.WORD):
            return self._name_or_call()
        raise self._error("a value")

    def _literal(self) -> Node | None:
        token = self._token
        value: Value
        match token.kind:
            case Kind.INT:
                value = whole(parse_decimal(token.text))
            case Kind.DECIMAL:
                value = parse_decimal(token.text)
            case Kind.FLOAT:
                value = float(token.text)
                if not isfinite(value):
                    raise self._refusal(f"{token.text} is beyond the range of DOUBLE")
            case Kind.STRING:
                return Literal(self._strings(""))
            case Kind.HEX:
                value = _bytes_literal(bytes.fromhex(token.text))
            case Kind.BIT:
                value = _bytes_literal(int(token.text or "0", 2).to_bytes((len(token.text) + 7) // 8))
            case Kind.INTRODUCER:
                self._at += 1
                if self._token.kind is not Kind.STRING:
                    raise self._error("a string")
                return Literal(self._strings(BINARY if token.text.lower() == "binary" else ""))
            case Kind.WORD if token.upper in ("NULL", "TRUE", "FALSE"):
                value = {"NULL": None, "TRUE": 1, "FALSE": 0}[token.upper]
            case _:
                return self._time_literal()
        self._at += 1
        return Literal(value)

    def _strings(self, collate: str) -> Text:
        """Join adjacent strings."""
        parts = []
        while self._token.kind is Kind.STRING:
            parts.append(self._token.text)
            self._at += 1
        return Text("".join(parts).encode("utf-8", "surrogateescape"), collate)

    def _time_literal(self) -> Node | None:
        """Parse DATE '…', TIME '…' or TIMESTAMP '…'."""
        token, following = self._token, self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        if following.kind is not Kind.STRING or not self._is("DATE", "TIME", "TIMESTAMP") or not self._plain_name():
            return None
        word = token.upper or token.text.upper()
        value = parse_span(following.text) if word == "TIME" else parse_moment(following.text)
        if value is None:
            raise self._refusal(f"{following.text!r} is not a {word}")
        self._at += 2
        return Literal(value)

    def _case(self) -> Node:
        """Parse CASE [value] WHEN … THEN … [ELSE …] END to nested IFs."""
        self._at += 1
        subject = None if self._is("WHEN") else self._or()
        branches: list[tuple[Node, Node]] = []
        while self._accept("WHEN"):
            when = self._or()
            self._expect("THEN")
            branches.append((when if subject is None else Call("=", (subject, when)), self._or()))
        if not branches:
            raise self._error("WHEN")
        result: Node = self._or() if self._accept("ELSE") else Literal(None)
        self._expect("END")
        for condition, then in reversed(branches):
            result = Call("IF", (condition, then, result))
        return result

    def _cast(self) -> Node:
        """Parse CAST(x AS type), CONVERT(x, type) or CONVERT(x USING charset), which changes nothing."""
        word = self._token.upper
        self._at += 1
        self._expect("(")
        operand = self._or()
        if word == "CONVERT" and self._accept("USING"):
            self._at += 1
            self._expect(")")
            return Cast(operand, "CHAR")
        self._expect("AS" if word == "CAST" else ",")
        kind = self._accept(*_CASTS)
        if not kind:
            raise self._error(f"one of {', '.join(_CASTS)}")
        self._accept("INTEGER", "INT")
        sizes = self._sizes()
        self._expect(")")
        size, digits = (*sizes, None, None)[:2]
        if kind == "DECIMAL" and ((size or 10) > _MAX_PRECISION or (digits or 0) > min(size or 10, MAX_SCALE)):
            raise self._refusal(f"a DECIMAL has at most {_MAX_PRECISION} digits, {MAX_SCALE} of them after the point")
        return Cast(operand, _CASTS[kind], size, digits or 0)

    def _sizes(self) -> list[int]:
        found: list[int] = []
        if not self._accept("("):
            return found
        while self._token.kind is Kind.INT:
            found.append(int(parse_decimal(self._token.text)))
            self._at += 1
            if not self._accept(","):
                break
        self._expect(")")
        return found

    def _name_or_call(self) -> Node:
        token = self._token
        self._at += 1
        quoted = self._text[token.position : token.position + 1] == "`"
        if self._is("(") and not quoted:
            return self._call(token)
        if token.kind is Kind.WORD and token.reserved:
            self._at -= 1
            raise self._error("a value")
        name = token.text
        while self._accept("."):
            if self._token.kind not in (Kind.NAME, Kind.WORD):
                raise self._error("a column's name")
            name = self._token.text  # the last part is the column; the table is the row's own
            self._at += 1
        return Column(name)

    def _call(self, token: Token) -> Node:
        name = token.upper or token.text.upper()
        if name in UNSTABLE:
            raise self._refusal(f"{name}() is not a matter of the row alone: a row read again might be judged otherwise")
        if name not in FUNCTIONS:
            raise self._refusal(f"function {name}() is not supported{did_you_mean(name.lower(), [f.lower() for f in FUNCTIONS])}")
        self._expect("(")
        operands = [] if self._is(")") else [self._or()]
        while self._accept(",") or (name in ("SUBSTRING", "SUBSTR", "MID") and self._accept("FROM", "FOR")):
            operands.append(self._or())
        self._expect(")")
        low, high = FUNCTIONS[name].operands
        if not low <= len(operands) <= high:
            raise self._refusal(f"{name}() takes {low if low == high else f'{low} to {high}'} operands, not {len(operands)}")
        return Call(name, tuple(operands))


def _bytes_literal(data: bytes) -> Choice:
    """Return the value of X'…' or B'…': bytes, or as a number their integer, at most the largest of 64 bits."""
    return Choice(min(int.from_bytes(data), MASK64), Text(data, BINARY))
