"""What was found: one line for each check, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tidemill.errors import TidemillError, redact


class Health(Enum):
    """The result of a check."""

    GOOD = "ok"
    DOUBTFUL = "warning"  # a changefeed starts, but may suffer later
    BAD = "failed"  # a changefeed does not start, or does not go on


@dataclass(frozen=True, slots=True)
class Finding:
    """`remedy`: what to do; empty where nothing is to be done. Neither text shows a secret."""

    subject: str
    health: Health
    text: str
    remedy: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {"subject": self.subject, "health": self.health.value, "text": self.text, "remedy": self.remedy}


def good(subject: str, text: str) -> Finding:
    """A check that passed."""
    return Finding(subject, Health.GOOD, redact(text))


def doubtful(subject: str, text: str, remedy: str) -> Finding:
    """A check that warns: it may do harm later."""
    return Finding(subject, Health.DOUBTFUL, redact(text), redact(remedy))


def bad(subject: str, text: str, remedy: str) -> Finding:
    """A thing that keeps a changefeed from working."""
    return Finding(subject, Health.BAD, redact(text), redact(remedy))


def of_error(subject: str, error: TidemillError | OSError, remedy: str = "") -> Finding:
    """What an error says; its own hint is the remedy, if it has one."""
    if isinstance(error, TidemillError):
        return bad(subject, error.message, error.hint or remedy)
    return bad(subject, str(error), remedy)


def is_well(findings: Iterable[Finding]) -> bool:
    """Whether a changefeed can be started."""
    return all(finding.health is not Health.BAD for finding in findings)
