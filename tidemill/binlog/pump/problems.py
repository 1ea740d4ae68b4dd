"""What a Pump cannot do just now, since when and why. A problem is logged when it begins, when its reason changes, and when it is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

_log = logging.getLogger(__name__)


class Work(StrEnum):
    """What can fail for a while, and goes on by itself."""

    REGISTRY = "registry"
    FAKE_BINLOGS = "fake binlogs"
    TIKV = "tikv"
    GC = "gc"


@dataclass(frozen=True, slots=True)
class Problem:
    """`since`: seconds of the clock on the wall."""

    since: float
    why: str


class Problems:
    """`now`: the clock on the wall, in seconds."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._found: dict[Work, Problem] = {}

    def __contains__(self, work: Work) -> bool:
        return work in self._found

    def tell(self, work: Work, why: str) -> None:
        """It has failed."""
        known = self._found.get(work)
        if known is None or known.why != why:
            _log.warning("%s: %s", work.value, why)
        self._found[work] = Problem(self._now(), why) if known is None else replace(known, why=why)

    def over(self, work: Work) -> None:
        """It has been done."""
        known = self._found.pop(work, None)
        if known is not None:
            _log.info("%s: it works again, after %.0f s", work.value, self._now() - known.since)

    def reasons(self) -> list[str]:
        """Why, of each."""
        return [problem.why for problem in self._found.values()]

    def page(self) -> dict[str, dict[str, str]]:
        """The same for /status."""
        return {
            work.value: {"Since": f"{datetime.fromtimestamp(problem.since, UTC):%Y-%m-%dT%H:%M:%SZ}", "Why": problem.why}
            for work, problem in self._found.items()
        }
