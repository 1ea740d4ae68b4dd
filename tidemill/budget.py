"""What reading foreign input may take: bytes, JSON values, compiled expressions, comparisons. Pure.

A few bytes can ask for gigabytes or hours: a compressed value of zeros, `[[],[],…]`, `[\\pL\\pN]{300}`, ten thousand rules for ten thousand
tables. So each parser of what somebody else wrote spends from a `Budget`, which whoever calls it makes from `Limits`. What is spent stays
spent: parts of one input share a budget, so many small ones cost no more than a large one.

Parsers of settings are called through many layers. They spend from the budget that is in force (`Budget.in_force`), in its context and in
the threads that `asyncio.to_thread` starts from there; without one, a setting is its owner's own and has no bound.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from tidemill.errors import TidemillError

UNBOUNDED = 1 << 62


class OverBudget(TidemillError, ValueError):
    """Foreign input asks for more work than it is worth. The message says of what, and the limit."""

    code = "TM:ErrOverBudget"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one input may take. `pattern_bytes`: memory of one compiled expression; the rest are sums over the input."""

    bytes_in: int = UNBOUNDED
    """Bytes that are read of somebody who may send without end."""
    bytes_out: int = UNBOUNDED
    """Bytes of what is expanded."""
    nodes: int = UNBOUNDED
    """Values of JSON: each takes some 60 bytes, and up to 230."""
    patterns: int = UNBOUNDED
    """Expressions that are compiled."""
    pattern_bytes: int = 8 << 20
    """RE2's default."""
    instructions: int = UNBOUNDED
    """RE2's instructions of all expressions: each takes 16 bytes and about 0.6 µs."""
    matches: int = UNBOUNDED
    """Names that are compared with a rule: each takes about 1 µs."""
    conditions: int = UNBOUNDED
    """Characters of conditions on rows, which are parsed: each takes about 10 µs."""
    guesses: int = UNBOUNDED
    """Unknown names for which a known one is looked for: each takes up to 0.5 ms. The others have no suggestion."""


MESSAGE = Limits(bytes_out=256 << 20, nodes=2 << 20)
"""A message of a topic or a file. TiDB's largest transaction entries fit, escaped; a table has at most 4,096 columns."""
ANSWER = Limits(bytes_in=64 << 20, nodes=4 << 20)
"""An answer of an HTTP server to a command. A list of ten thousand changefeeds has some 5 MiB."""
STATE = Limits(nodes=4 << 20)
"""A file of Tidemill's own state: it may lie in somebody else's bucket. A manifest of 100,000 tables has 700,000 values."""
REQUEST = Limits(
    nodes=1 << 18, patterns=25_000, pattern_bytes=256 << 10, instructions=500_000, matches=5_000_000, conditions=200_000, guesses=100
)
"""A request to an HTTP API."""
FILTER = Limits(patterns=4096, pattern_bytes=2 << 20, instructions=50_000)
"""The filter of a Canal client."""

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_STRINGS = re.compile(_STRING, re.DOTALL)
_CHUNK = re.compile(rb'(?:[^"]|' + _STRING + rb"){1,65536}+", re.DOTALL)
"""So many signs and strings: the end of a chunk is in no string."""
_SIGNS = (b",", b"[", b"{", b":")


@dataclass(slots=True)
class Budget:
    """What is left of `limits`. Threads may share it: a sum is then nearly exact."""

    limits: Limits
    _spent: dict[str, int] = field(default_factory=dict)

    def spend(self, kind: str, count: int) -> None:
        """Take `count` of a limit, by the name of its field. Raises OverBudget."""
        limit = getattr(self.limits, kind)
        spent = self._spent[kind] = self._spent.get(kind, 0) + count
        if spent > limit:
            raise OverBudget(_EXCEEDED[kind].format(limit=f"{limit:,}"), hint=_HINTS.get(kind, ""))

    def left(self, kind: str) -> int:
        """Return what is left of a limit."""
        return max(0, int(getattr(self.limits, kind)) - self._spent.get(kind, 0))

    def json(self, text: bytes | str, load: Callable[[str], Any] = json.loads) -> Any:
        """Parse JSON, its values counted before they are made. Raises OverBudget, and what `load` raises."""
        data = text.encode() if isinstance(text, str) else text
        self.spend("nodes", json_nodes(data, self.left("nodes")))
        return load(text if isinstance(text, str) else text.decode())

    def body(self, encoding: str | None, pieces: Iterable[bytes]) -> bytes:
        """Return the body of an HTTP answer, as it came. Raises OverBudget, also for one that is compressed: a thousand bytes, compressed
        twice, may stand for gigabytes."""
        if said := (encoding or "").strip().lower().removeprefix("identity"):
            raise OverBudget(f"it is encoded ({said[:40]}), which was not asked for")
        found = bytearray()
        for piece in pieces:
            self.spend("bytes_in", len(piece))
            found += piece
        return bytes(found)

    @contextmanager
    def in_force(self) -> Iterator[Budget]:
        """Let parsers of settings spend from this budget."""
        token = _IN_FORCE.set(self)
        try:
            yield self
        finally:
            _IN_FORCE.reset(token)


_EXCEEDED = {
    "bytes_in": "it has more than the limit of {limit} bytes",
    "bytes_out": "expanded it is more than the limit of {limit} bytes",
    "nodes": "its JSON has more than {limit} values",
    "patterns": "there are more than {limit} expressions",
    "instructions": "its expressions are too large together: more than {limit} instructions",
    "conditions": "its conditions on rows have more than {limit} characters together",
    "matches": "comparing all tables with all rules takes more than {limit} steps",
}
_HINTS = {
    "patterns": "Say it by fewer rules: wildcards, or `!` for exceptions.",
    "instructions": "Repetitions such as `{300}` are written out, and classes such as `\\pL` have hundreds of ranges.",
    "matches": "Say it by fewer rules: wildcards, or `!` for exceptions.",
}
_IN_FORCE: ContextVar[Budget | None] = ContextVar("budget", default=None)
_OWN = Budget(Limits())
"""Of settings that are their owner's own: without bounds."""


def current() -> Budget:
    """Return the budget that is in force, or one without bounds."""
    return _IN_FORCE.get() or _OWN


def json_nodes(text: bytes, enough: int = 0) -> int:
    """Return how many values and names a JSON text has at most. It need not be JSON. `enough`: above it, the count may be too small."""
    rough = 1 + sum(map(text.count, _SIGNS))
    if rough <= enough:  # signs within strings taken for values
        return rough
    count = 1
    for chunk in _CHUNK.finditer(text):
        bare = _STRINGS.sub(b"", chunk[0])
        count += sum(map(bare.count, _SIGNS))
        if count > enough:
            break
    return count
