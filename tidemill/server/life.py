"""The life of one changefeed of a server: its state, its error, and when it is started again. Pure: the caller says what time it is.

The states are those of `changefeed.states`, the pauses and limits those of `changefeed.restart_backoff`. Each method says what happened,
and returns what the server has to do.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tidemill.changefeed.restart_backoff import How, Patience, how_ended
from tidemill.changefeed.states import RUNS, Event, State, after
from tidemill.errors import EXIT_FATAL, EXIT_RETRY
from tidemill.server.errors import LogNotKept

RESTS = (State.STOPPED, State.FAILED, State.PENDING, State.WARNING)
"""States in which a checkpoint may stand still: what it needs stays in the log for --gc-ttl."""
HOST_LOST = "TM:ErrProcessLost"
INHERITED_S = 900.0
"""So old may the last attempt of the server before be for its errors to count here. It is longer than most pauses between attempts."""


class Do(enum.Enum):
    """What the server has to do."""

    NOTHING = enum.auto()
    START = enum.auto()
    STOP = enum.auto()
    WAIT = enum.auto()  # and start it at `retry_at`


@dataclass(frozen=True, slots=True)
class Trouble:
    """An error. `at`: when it came, in Unix seconds. `since`: when the first one came without progress after it."""

    code: str
    message: str
    at: float
    since: float


class Life:
    """One changefeed. `runs`: the host has it; a report of an earlier run is not for this one."""

    def __init__(self, state: State, trouble: Trouble | None, stuck_s: float) -> None:
        self.state, self.trouble = state, trouble
        self.runs = False
        self.run = 0
        self.retry_at: float | None = None
        self._patience = Patience(stuck_s)
        self._inherited = trouble
        """An error that the server before this one met: the time for errors runs on from it, unless no server was there meanwhile."""

    @property
    def wanted(self) -> bool:
        """Whether it is to run, now or after a pause."""
        return self.state in RUNS or self.state is State.PENDING

    @property
    def retries(self) -> bool:
        """Whether the next run follows an error: it is in state warning until the checkpoint moves."""
        return self.state is State.WARNING

    # ---- what the host says

    def host_up(self) -> Do:
        """The host has begun: it has no changefeed yet."""
        self.runs = False
        if self.state in RUNS:
            return Do.START
        return Do.WAIT if self.state is State.PENDING else Do.NOTHING

    def host_lost(self, message: str, now: float) -> None:
        """The host has ended, and is started again."""
        if self.runs and self.state in RUNS:
            self.state = after(self.state, Event.ERRED)
            self._note(HOST_LOST, message, now)
        self.runs = False

    def started(self) -> int:
        """It is given to the host. Return the number of the run."""
        if self.state is State.PENDING:
            self.state = after(self.state, Event.RETRIED)
        self.runs, self.retry_at = True, None
        self.run += 1
        return self.run

    def erred(self, code: str, message: str, now: float) -> None:
        """An attempt failed and is tried again."""
        if self.state in RUNS:
            self.state = after(self.state, Event.ERRED)
            self._note(code, message, now)

    def _note(self, code: str, message: str, now: float, since: float | None = None) -> None:
        """Note an error. Each attempt has one: the trouble is as old as the first."""
        began = self.trouble.since if self.trouble is not None else now if since is None else since
        self.trouble = Trouble(code, message, now, began)

    def advanced(self, moved_at: float) -> bool:
        """The checkpoint moved, at that time. Return whether the state changed by it."""
        if self.state not in RUNS or (self.trouble is not None and moved_at <= self.trouble.at):
            return False
        before, self.state = (self.state, self.trouble), after(self.state, Event.ADVANCED)
        self.trouble = None
        return before != (self.state, None)

    def reached(self) -> None:
        """Its target is reached."""
        self.runs = False
        if self.state in RUNS:
            self.state, self.trouble = after(self.state, Event.TARGET_REACHED), None

    def stopped(self) -> Do:
        """It ended because it was asked to. Whoever paused it may have resumed it since."""
        self.runs = False
        return Do.START if self.state in RUNS else Do.NOTHING

    def failed(
        self, code: str, message: str, *, retryable: bool, now: float, checkpoint: int, trouble_since: float | None, chance: float
    ) -> Do:
        """It ended by an error. `trouble_since`, `chance`: see `Patience.ended`."""
        self.runs = False
        if self.state not in RUNS:
            return Do.NOTHING
        how = how_ended(EXIT_RETRY if retryable else EXIT_FATAL, code)
        before, self._inherited = self._inherited, None
        if before is not None and self.trouble is not None and self.trouble.since == before.since and now - before.at <= INHERITED_S:
            trouble_since = before.since
        verdict = self._patience.ended(how, code, now=now, checkpoint=checkpoint, trouble_since=trouble_since, chance=chance)
        for event in verdict.events:
            self.state = after(self.state, event)
        self._note(code, message, now, trouble_since)
        if verdict.pause_s is None:
            return Do.NOTHING
        assert how is not How.REFUSED
        self.state = after(self.state, Event.PUT_OFF)
        self.retry_at = now + verdict.pause_s
        return Do.WAIT

    # ---- what a person says

    def paused(self) -> Do:
        """Raises ValueError for a finished one."""
        self.state, self.retry_at = after(self.state, Event.PAUSED), None
        return Do.STOP if self.runs else Do.NOTHING

    def resumed(self, now: float) -> Do:
        """The time for errors begins again."""
        if self.state is State.NORMAL:
            return Do.NOTHING
        self._patience.resumed(now)
        self.state, self.trouble, self.retry_at = after(self.state, Event.RESUMED), None, None
        return Do.NOTHING if self.runs else Do.START

    def removed(self) -> Do:
        self.state, self.retry_at = after(self.state, Event.REMOVED), None
        return Do.STOP if self.runs else Do.NOTHING

    # ---- time

    def expired(self, error: LogNotKept, now: float) -> Do:
        """--gc-ttl is over: the log does not keep for it what it needs."""
        self.state, self.retry_at = after(self.state, Event.EXPIRED), None
        self.trouble = Trouble(error.code, str(error), now, now)
        return Do.STOP if self.runs else Do.NOTHING

    @property
    def has_expired(self) -> bool:
        return self.state is State.FAILED and self.trouble is not None and self.trouble.code == LogNotKept.code
