"""Regular expressions of Canal's filters, which are Perl 5's, matched against a table's name in time that is bounded.

RE2 has no lookaround, and an engine that has it can take years for one name. So an expression is cut where a lookaround stands outside of
brackets; RE2 matches the pieces, and each place where one could end and the next begin is tried. Lookaround inside brackets and back
references are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import re2

from tidemill.budget import Budget
from tidemill.rules.patterns import compiled

MOST_PIECES = 8
"""Of an expression with lookaround."""
LONGEST = 64 << 10
"""Characters of an expression."""
_LOOKAROUND = ("(?=", "(?!", "(?<=", "(?<!")
_CLASSES = {"w": r"\p{L}\p{Nd}_", "d": r"\p{Nd}"}
_NEGATED = {"W": r"[^\p{L}\p{Nd}_]", "D": r"\P{Nd}"}
_PAIRS = {"(": ")", "[": "]", "{": "}"}


class PatternError(ValueError):
    """An expression that does not compile. The text says which and why."""


def has_lookaround(text: str) -> bool:
    """Whether an expression has, or seems to have, lookaround."""
    return any(mark in text for mark in _LOOKAROUND)


def split_outside(text: str, separator: str) -> list[str]:
    """The parts between separators that stand outside of (), [] and {}."""
    parts: list[str] = []
    start = 0
    for at, sign, open_ in _nested(text):
        if sign == separator and not open_:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def is_closed(text: str) -> bool:
    """Whether all brackets of an expression are closed, and it closes no others."""
    depth = 0
    for _, sign, open_ in _nested(text):
        if sign in (")", "}") and depth == 0:
            return False
        depth = open_
    return depth == 0 and not text.endswith("\\")


def _nested(text: str) -> Iterator[tuple[int, str, int]]:
    """Each character that is not escaped: place, text, and how many brackets are open behind it."""
    open_: list[str] = []
    for at, sign, _ in _signs(text):
        if open_ and sign == open_[-1]:
            open_.pop()
        elif sign in _PAIRS and not (open_ and open_[-1] == "]"):
            open_.append(_PAIRS[sign])
        yield at, sign, len(open_)


def _signs(text: str) -> Iterator[tuple[int, str, bool]]:
    """Each character that is not escaped, or an escape of two characters: place, text, whether it is in a class."""
    at, in_class = 0, False
    while at < len(text):
        size = 2 if text[at] == "\\" and at + 1 < len(text) else 1
        sign = text[at : at + size]
        yield at, sign, in_class
        if sign == "[" and not in_class:
            in_class = True
        elif sign == "]" and in_class and text[at - 1] != "[":
            in_class = False
        at += size


def _translated(text: str) -> str:
    """Perl's \\w and \\d know every script's letters and digits, RE2's do not."""
    made = []
    for _, sign, in_class in _signs(text):
        letter = sign[1:] if len(sign) == 2 else ""
        if letter in _CLASSES:
            made.append(_CLASSES[letter] if in_class else f"[{_CLASSES[letter]}]")
        elif letter in _NEGATED and not in_class:
            made.append(_NEGATED[letter])
        else:
            made.append(sign)
    return "".join(made)


def _compiled(text: str, budget: Budget) -> Any:
    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    options.never_capture = True
    try:
        return compiled(_translated(text), options, budget)
    except re2.error as error:
        told = error.args[0] if error.args else error
        reason = told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
        raise PatternError(f"expression {text[:200]!r} does not compile: {reason[:200]}") from None


@dataclass(frozen=True, slots=True)
class _Plain:
    """What RE2 matches."""

    regex: Any

    def ends(self, text: str, starts: set[int]) -> set[int]:
        """Where a match that begins at one of the places can end."""
        return {end for start in starts for end in range(start, len(text) + 1) if self.regex.fullmatch(text[start:end])}


@dataclass(frozen=True, slots=True)
class _Look:
    """A lookaround."""

    regex: Any
    ahead: bool
    wanted: bool

    def ends(self, text: str, starts: set[int]) -> set[int]:
        """The places of these at which it holds."""
        return {at for at in starts if self._holds(text, at) == self.wanted}

    def _holds(self, text: str, at: int) -> bool:
        if self.ahead:
            return self.regex.match(text[at:]) is not None
        return any(self.regex.fullmatch(text[start:at]) for start in range(at + 1))


class Pattern:
    """An expression that a whole name matches. `budget`: of the filter that it stands in. Raises PatternError, OverBudget."""

    def __init__(self, text: str, budget: Budget) -> None:
        if len(text) > LONGEST:
            raise PatternError(f"expression has {len(text)} characters, and up to {LONGEST} are taken")
        self.text = text
        self._regex: Any = None
        self._chains: list[list[_Plain | _Look]] = []
        if has_lookaround(text):
            self._chains = [list(_pieces(part, budget)) for part in split_outside(text, "|")]
        if sum(map(len, self._chains)) > MOST_PIECES:
            raise PatternError(f"expression {text[:200]!r} has more than {MOST_PIECES} pieces between lookarounds")
        if not any(isinstance(piece, _Look) for chain in self._chains for piece in chain):
            self._chains = []
            self._regex = _compiled(text, budget)

    def matches(self, name: str) -> bool:
        """Whether it matches the whole name, upper and lower case being the same."""
        if self._regex is not None:
            return self._regex.fullmatch(name) is not None
        return any(_chain_matches(chain, name) for chain in self._chains)


def _chain_matches(chain: list[_Plain | _Look], name: str) -> bool:
    places = {0}
    for piece in chain:
        places = piece.ends(name, places)
        if not places:
            return False
    return len(name) in places


def _pieces(text: str, budget: Budget) -> Iterator[_Plain | _Look]:
    """An alternative, cut at its lookarounds."""
    start, depth, look = 0, 0, -1
    for at, sign, in_class in _signs(text):
        if in_class:
            continue
        if sign == "(":
            if depth == 0 and text.startswith(_LOOKAROUND, at):
                if at > start:
                    yield _Plain(_compiled(text[start:at], budget))
                look = at
            depth += 1
        elif sign == ")":
            depth -= 1
            if depth == 0 and look >= 0:
                yield _look(text[look:at], budget)
                start, look = at + 1, -1
    if start < len(text):
        yield _Plain(_compiled(text[start:], budget))


def _look(text: str, budget: Budget) -> _Look:
    behind = text.startswith("(?<")
    mark = 4 if behind else 3
    return _Look(_compiled(text[mark:], budget), not behind, text[mark - 1] == "=")
