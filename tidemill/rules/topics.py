"""Topic expressions: the `topic` of a dispatcher gives the topic of a table's rows.

    [prefix]{schema}[middle]{table}[suffix]

Both placeholders are optional; the other parts consist of A-Z a-z 0-9 . _ -. The rules are those of TiCDC v8.5.7's topic dispatcher,
checked against golden/ticdc/topics.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_TOPIC_LENGTH = 249

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_FIXED = re.compile(r"[A-Za-z0-9._-]+")
_EXPRESSION = re.compile(r"[A-Za-z0-9._-]*(?:\{schema\})?(?:[A-Za-z0-9._-]*\{table\})?[A-Za-z0-9._-]*")
_BOTH = re.compile(r"[A-Za-z0-9._-]*\{schema\}[A-Za-z0-9._-]*\{table\}[A-Za-z0-9._-]*")
_FORBIDDEN = re.compile(r"[^A-Za-z0-9._-]")
_DOTS = {".": "_", "..": "__"}


def check_topic(value: str) -> str:
    """Check a Kafka topic name. Raises ValueError."""
    if not _TOPIC.fullmatch(value) or value in (".", ".."):
        raise ValueError("expected 1 to 249 of the characters A-Z a-z 0-9 . _ -")
    return value


@dataclass(frozen=True, slots=True)
class TopicExpression:
    """A checked expression. Empty: the sink's topic."""

    text: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if not _EXPRESSION.fullmatch(self.text):
            raise ValueError("expected a topic name, or an expression [prefix]{schema}[middle]{table}[suffix] of A-Z a-z 0-9 . _ -")

    def check_avro(self) -> None:
        """Check the expression for Avro, where a topic holds one table: it has both placeholders or none. Raises ValueError."""
        if self.text and not self.fixed and not _BOTH.fullmatch(self.text):
            raise ValueError("with a schema registry an expression has both {schema} and {table}")

    @property
    def fixed(self) -> bool:
        """Whether the expression is a fixed topic name."""
        return bool(_FIXED.fullmatch(self.text))

    def topic(self, schema: str, table: str, default: str) -> str:
        """Return the topic of a table. Kafka may still refuse it: it can be empty, `.` or `..`."""
        if not self.text:
            return default
        if self.fixed:
            return self.text
        named = self.text.replace("{schema}", _FORBIDDEN.sub("_", schema)).replace("{table}", _FORBIDDEN.sub("_", table))
        return _DOTS.get(named, named[:MAX_TOPIC_LENGTH])
