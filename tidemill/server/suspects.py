"""Finds the changefeed whose delivery kills the delivery host, so that it does not take the others down again and again. Pure.

A changefeed has *proved* itself in a run when its checkpoint advanced, or it reported an error of its own. When the host crashes, each
one that has not is counted. One that has been there twice in a row is a *suspect*: the others start at once, and suspects after them, one
at a time. If the host crashes while a single changefeed has not proved itself, that one is to blame. It waits, longer each time, as after
any other error that may pass, and is failed by the same rules.
"""

from __future__ import annotations

SUSPECT_AFTER = 2
SETTLE_S = 30.0
"""So long a suspect waits for others to prove themselves: the first batch of a backlog takes longer."""


class Suspects:
    """All calls have names of changefeeds; times are seconds of a clock that does not jump."""

    def __init__(self) -> None:
        self._crashes: dict[str, int] = {}
        self._unproven: dict[str, float] = {}
        self._waiting: dict[str, None] = {}

    def suspects(self, feed: str) -> bool:
        """Whether it is one."""
        return self._crashes.get(feed, 0) >= SUSPECT_AFTER

    def may_start(self, feed: str, now: float) -> bool:
        """Whether it may be started now. If not, `next_one` names it later."""
        if not self.suspects(feed) or self._settled(now):
            self._waiting.pop(feed, None)
            return True
        self._waiting[feed] = None
        return False

    def next_one(self, now: float) -> str | None:
        """Return a suspect that may be started now."""
        return next(iter(self._waiting), None) if self._settled(now) else None

    def _settled(self, now: float) -> bool:
        """Whether nobody could be confused with a suspect that starts now. Two suspects never start within the same time."""
        return all(not self.suspects(feed) and now - since >= SETTLE_S for feed, since in self._unproven.items())

    def started(self, feed: str, now: float) -> None:
        """The host has it."""
        self._unproven[feed] = now

    def advanced(self, feed: str) -> None:
        """Its checkpoint advanced."""
        self._unproven.pop(feed, None)
        self._crashes.pop(feed, None)

    def spoke(self, feed: str) -> None:
        """It reported an error, or its end."""
        self._unproven.pop(feed, None)

    def forget(self, feed: str) -> None:
        """It is paused or removed."""
        for known in (self._unproven, self._waiting, self._crashes):
            known.pop(feed, None)

    def host_lost(self, crashed: bool) -> str | None:
        """The host ended. Return the changefeed that is to blame, if that is clear. An error that the host told is nobody's fault."""
        unproven = [*self._unproven]
        self._unproven.clear()
        self._waiting.clear()
        if not crashed:
            return None
        for feed in unproven:
            self._crashes[feed] = self._crashes.get(feed, 0) + 1
        return unproven[0] if len(unproven) == 1 and self.suspects(unproven[0]) else None
