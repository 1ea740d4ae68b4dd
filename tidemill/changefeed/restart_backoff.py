"""What follows the end of a changefeed's process: when it is started again, and when it is given up. Pure: no clock, no random.

The rules are TiCDC's. After an error that may pass the process is started again after 10 s, 20 s, 40 s, … up to half an hour; each pause
is up to a tenth longer or shorter, by chance. If such errors come for `changefeed-error-stuck-duration` and the checkpoint does not move,
the changefeed has failed. After an error that does not pass it has failed at once. Two rules differ from TiCDC: a process that is lost
(killed, out of memory) for the first time since the last progress is started again after a second; the log's storage being away, or
a full disk, never makes a changefeed fail.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tidemill.changefeed.states import Event
from tidemill.errors import EXIT_FATAL, EXIT_RETRY, DiskLow, LogUnavailable, SinkError

STUCK_S = 1800.0
"""TiCDC's default of changefeed-error-stuck-duration."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses before a process is started again."""

    first_s: float = 10.0
    longest_s: float = 1800.0
    jitter: float = 0.1
    lost_s: float = 1.0
    """After the first loss of a process that reported no error."""
    log_away_s: float = 60.0
    """The longest pause while the log's storage is away or a disk is full: nothing else is wrong, and the changefeed should be back soon
    after that is mended."""


AWAY = frozenset({LogUnavailable.code, DiskLow.code})
"""What passes when the storage answers again, or has room: it is waited for however long it takes."""


class How(enum.Enum):
    """How a process ended."""

    REFUSED = "refused"  # it reported an error that does not pass
    ERRED = "erred"  # it reported an error that may pass
    LOST = "lost"  # it reported nothing: killed, out of memory, a bug


def how_ended(status: int, code: str | None) -> How:
    """How a process ended, by its exit status and the code of the error that it reported, if it reported one."""
    if code is None:
        return How.LOST
    if code in _MENDED_OUTSIDE:
        return How.ERRED
    return {EXIT_FATAL: How.REFUSED, EXIT_RETRY: How.ERRED}.get(status, How.LOST)


_MENDED_OUTSIDE = {SinkError.code}
"""Refusals that pass when somebody changes something outside: grants a right again, makes room on a disk. TiCDC retries them too."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows an end: events for the state, and the pause before the next start. None: it is not started again."""

    events: tuple[Event, ...]
    pause_s: float | None


class Patience:
    """Judges one end after the other."""

    def __init__(self, stuck_s: float = STUCK_S, backoff: Backoff | None = None) -> None:
        self._stuck_s, self._backoff = stuck_s, backoff or Backoff()
        self._checkpoint: int | None = None
        self.since = 0.0
        """When the errors without progress began."""
        self._ends = 0  # how many there were since then
        self._resumed_at = 0.0

    def resumed(self, now: float) -> None:
        """A person resumed the changefeed: the time for errors begins again."""
        self._checkpoint, self._resumed_at = None, now

    def ended(self, how: How, code: str, *, now: float, checkpoint: int, trouble_since: float | None, chance: float) -> Verdict:
        """`trouble_since`: when the process met the first error since its last progress; None: when it ended. `chance`: 0 to 1."""
        if self._checkpoint is None or checkpoint > self._checkpoint:
            self.since = max(self._resumed_at, now if trouble_since is None else trouble_since)
            self._checkpoint, self._ends = checkpoint, 0
        self._ends += 1
        if how is How.REFUSED:
            return Verdict((Event.REFUSED,), None)
        if code in AWAY:
            return Verdict((Event.ERRED,), self._spread(self._doubled(self._backoff.log_away_s), chance))
        left = self.since + self._stuck_s - now
        if left <= 0:
            return Verdict((Event.ERRED, Event.STUCK), None)
        if how is How.LOST and self._ends == 1:
            return Verdict((Event.ERRED,), min(left, self._backoff.lost_s))
        return Verdict((Event.ERRED,), min(left, self._spread(self._doubled(self._backoff.longest_s), chance)))

    def _doubled(self, longest: float) -> float:
        return float(min(longest, self._backoff.first_s * 2.0 ** min(self._ends - 1, 30)))

    def _spread(self, pause: float, chance: float) -> float:
        return pause * (1 + self._backoff.jitter * (2 * chance - 1))
