"""Go's regular expressions, which TiCDC's settings use, run by RE2 in time linear in the text.

RE2 reads Go's syntax except for one escape. Its error texts differ; here they are replaced by Go's, which TiCDC's users know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import re2

from tidemill.budget import UNBOUNDED, Budget, OverBudget, current
from tidemill.errors import ConfigError
from tidemill.visible import cut

_BY_GO = {
    "pattern too large - compile failed": "expression too large",
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}
_ESCAPE = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.", re.DOTALL)
_ANY_BYTE = "\\C"  # only RE2 has it; Go reads whole characters


@dataclass(frozen=True, slots=True)
class GoRegex:
    """A pattern. `fold` ignores case. Raises ConfigError that says what is wrong with it."""

    text: str
    fold: bool = False
    _compiled: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if _ANY_BYTE in _ESCAPE.findall(self.text):
            raise ConfigError(f"error parsing regexp: invalid escape sequence: `{_ANY_BYTE}`")
        options = re2.Options()
        options.log_errors = False
        options.case_sensitive = not self.fold
        try:
            object.__setattr__(self, "_compiled", compiled(self.text.encode("utf-8", "replace"), options, current()))
        except re2.error as error:
            raise ConfigError(_in_go_words(error.args[0].decode("utf-8", "replace"))) from None
        except OverBudget as error:
            raise ConfigError(error.message, hint=error.hint) from None

    def found_in(self, text: str) -> bool:
        """Return whether the pattern matches anywhere in a text."""
        return self._compiled.search(text.encode("utf-8", "replace")) is not None


def compiled(text: str | bytes, options: Any, budget: Budget) -> Any:
    """Return an expression that RE2 has compiled, paid for from a budget. Raises re2.error, OverBudget.

    RE2 holds Python's lock while it compiles, so no other thread can end what takes too long: its memory, and by that its time, is limited
    before. What a stranger asks for is not kept in the module's cache of 128 expressions.
    """
    budget.spend("patterns", 1)
    options.max_mem = budget.limits.pattern_bytes
    try:
        found = re2.compile(text, options)
        budget.spend("instructions", found.programsize)
    finally:
        if budget.limits.patterns < UNBOUNDED:
            re2.purge()
    return found


def go_literal(text: str) -> str:
    """Return a pattern that matches exactly this text."""
    return str(re2.escape(text.encode("utf-8", "replace")).decode())


def _in_go_words(error: str) -> str:
    """Return Go's text for an error of RE2. Go puts the place into backquotes."""
    fault, colon, place = error.partition(": ")
    return f"error parsing regexp: {_BY_GO.get(fault, fault)}" + (f": `{cut(place)}`" if colon else "")
