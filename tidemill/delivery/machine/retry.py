"""How long to wait before the next attempt, and when there is none. Pure: the caller says what time it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Pauses between attempts: they double from `first_s` to `longest_s`. An attempt that fails `total_s` after the first failure, or
    later, is the last one.

    Spark may give the job up `lost_attempts` times: if the cause lies in the rows, more attempts do not help. Storage that is
    away does not count: it is waited for until it is back, with a warning every `storage_word_s`.
    """

    first_s: float = 1.0
    longest_s: float = 30.0
    total_s: float = 300.0
    lost_attempts: int = 3
    storage_word_s: float = 60.0


class Pauses:
    """The pauses of one outage."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._pause = policy.first_s
        self._began: float | None = None

    def after_failure(self, now: float) -> float | None:
        """Seconds to wait after a failure at `now`; None: the policy's time is over."""
        if self._began is None:
            self._began = now
        return self.next() if now - self._began < self._policy.total_s else None

    def next(self) -> float:
        """The next pause, however long it has been."""
        pause, self._pause = self._pause, min(self._policy.longest_s, 2 * self._pause)
        return pause
