"""When a write of a binlog is tried again, and where. Pure: a write is asked what to do next, and told how each attempt ended.

A Prewrite goes from Pump to Pump: every 100 ms for 15 s, with at least one try more than there are Pumps; then each Pump once. A Commit
or a Rollback goes to the Pump that has the Prewrite, every second for ten minutes, or until that Pump has gone offline: SQL has returned by
then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tidemill.binlog.client.options import ClientOptions
from tidemill.binlog.client.pumps import Pumps


@dataclass(frozen=True, slots=True)
class Attempt:
    """Write to this Pump."""

    node_id: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again after so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Done:
    """The binlog is written, in this Pump."""

    node_id: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No Pump took it; `why` is the last error."""

    why: str


Step = Attempt | Wait | Done | GiveUp


class Outcome(Enum):
    """How an attempt ended."""

    WRITTEN = "written"
    REFUSED = "refused"
    TOO_LARGE = "too large for any Pump"
    GONE = "the Pump has gone offline, and has asked TiKV for all that was open in it"


class _Phase(Enum):
    ROUND = "Pumps are tried by the strategy"
    LAST = "each Pump is tried once more"
    OVER = "it is written, or given up"


@dataclass(slots=True)
class PrewriteAttempts:
    """The attempts of one Prewrite, which began at `began`."""

    pumps: Pumps
    options: ClientOptions
    start_ts: int
    began: float
    retry: int = 0
    why: str = "no Pump is online"
    _phase: _Phase = _Phase.ROUND
    _pausing: bool = False
    _left: list[str] = field(default_factory=list)
    _done: str | None = None

    def next(self, now: float) -> Step:
        """Return what to do at `now`."""
        if self._phase is _Phase.ROUND:
            if self._pausing:
                self._pausing = False
                return Wait(self.options.retry_every)
            chosen = self.pumps.choose(self.start_ts, self.retry)
            if chosen is not None:
                return Attempt(chosen)
            self._count(now)
            if self._phase is _Phase.ROUND:
                return Wait(self.options.retry_every)
        if self._phase is _Phase.LAST:
            if self._left:
                return Attempt(self._left.pop(0))
            self._phase = _Phase.OVER
        return GiveUp(self.why) if self._done is None else Done(self._done)

    def ended(self, now: float, node_id: str, outcome: Outcome, why: str = "") -> None:
        """An attempt has ended."""
        if outcome is Outcome.WRITTEN:
            self._done, self._phase = node_id, _Phase.OVER
            return
        self.why = why
        if outcome is Outcome.TOO_LARGE:
            self._phase = _Phase.OVER
        elif self._phase is _Phase.ROUND:
            self._pausing = True
            self._count(now)

    def _count(self, now: float) -> None:
        """One more attempt failed: the rounds are over when both their time and their number are."""
        if now - self.began >= self.options.retry_for and self.retry > len(self.pumps.online):
            self._phase, self._left, self._pausing = _Phase.LAST, list(self.pumps.online), False
        self.retry += 1


@dataclass(slots=True)
class CommitAttempts:
    """The attempts of one Commit or Rollback, to the Pump that has its Prewrite."""

    options: ClientOptions
    node_id: str
    began: float
    why: str = ""
    _pausing: bool = False
    _over: Step | None = None

    def next(self, now: float) -> Step:
        """Return what to do at `now`."""
        if self._over is not None:
            return self._over
        if self._pausing:
            self._pausing = False
            return Wait(self.options.commit_every)
        return Attempt(self.node_id)

    def ended(self, now: float, node_id: str, outcome: Outcome, why: str = "") -> None:
        """An attempt has ended."""
        self.why, self._pausing = why, True
        if outcome is Outcome.WRITTEN:
            self._over = Done(node_id)
        elif outcome in (Outcome.TOO_LARGE, Outcome.GONE) or now - self.began >= self.options.commit_for:
            self._over = GiveUp(why)
