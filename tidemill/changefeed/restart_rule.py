"""Keeps the state of one changefeed over the starts and ends of its process.

The process that delivers writes into delivery.json whether its state is normal or warning. When it has ended, the restart rule decides what
follows (`patience`), moves the state (`states`), and writes both where the next process, `tidemill status` and the next run find them.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from tidemill.changefeed.feed_folder import FeedFolder
from tidemill.changefeed.feed_status import Status
from tidemill.changefeed.restart_backoff import AWAY, How, Patience, how_ended
from tidemill.changefeed.states import Event, State, after
from tidemill.errors import Fenced, TidemillError, redact
from tidemill.process.supervisor import Answer, End, Then

log = logging.getLogger(__name__)

CRASHED = "TM:ErrProcessLost"


class RestartRule:
    """The supervisor's rule for the process that delivers. `resume`: the command that resumes it. `new`: it has never delivered."""

    def __init__(
        self,
        folder: FeedFolder,
        patience: Patience,
        *,
        resume: str = "",
        new: bool = False,
        clock: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._folder, self._patience, self._clock, self._chance = folder, patience, clock, chance
        self.resume = resume
        self.state = State.NORMAL
        self.error: dict[str, str] | None = None
        self.since: float | None = None
        """When it failed; in state warning, when the errors began."""
        self.retry_at: float | None = None
        self._may_give_up, self._runs = new, False
        self._written_before: object = None  # when delivery.json was written that was there before the process that runs

    def begins(self) -> None:
        """A process is about to start."""
        self.retry_at, self._runs = None, True
        self._written_before = (self._folder.status() or {}).get("updated_at")

    @property
    def retries(self) -> bool:
        """Whether the process is started again after an error that may pass."""
        return self.state is State.WARNING

    def resumed(self) -> bool:
        """A person resumes the changefeed; the time for errors begins again. Returns whether there was anything to resume.

        delivery.json keeps the error until the process begins, because the process looks at it.
        """
        self._patience.resumed(self._clock())
        if self._runs or self.state not in (State.WARNING, State.FAILED):
            return False
        self._move(Event.RESUMED)
        self.error = self.since = self.retry_at = None
        return True

    def ended(self, end: End) -> Answer:
        """The process has ended: what follows."""
        self._runs = False
        said, own = self._said(end.pid)
        if end.status == 0 or (own and said.state == State.FINISHED):
            if own:  # what it met before its last progress is over
                self.state, self.error, self.since, self.retry_at = State(said.state), said.error, said.warning_since, None
            return Answer(Then.OVER)
        new, self._may_give_up = self._may_give_up, False
        how = how_ended(end.status, end.error[0] if end.error is not None else None)
        code, message = end.error or (CRASHED, f"its process ended with {end.why}")
        now = self._clock()
        if new and not said.begun and how is not How.LOST and code not in AWAY:
            self._move(Event.REFUSED)
            self.error, self.since = {"code": code, "message": redact(message)}, now
            self._save(said)
            return Answer(Then.GIVE_UP)
        self.state = State(said.state) if own else self.state
        verdict = self._patience.ended(
            how, code, now=now, checkpoint=said.checkpoint_ts, trouble_since=said.warning_since, chance=self._chance()
        )
        for event in verdict.events:
            self._move(event)
        self.error = {"code": code, "message": redact(message)}
        if verdict.pause_s is None:
            self.since, self.retry_at = now, None
            self._save(said)
            log.error("changefeed %s failed and is not tried again: %s: %s", self._folder.changefeed, code, message)
            log.error("the capture goes on. Once the cause is mended, resume the changefeed: %s", self.resume)
            return Answer(Then.REST)
        self.since, self.retry_at = self._patience.since, now + verdict.pause_s
        self._save(said)
        log.warning(
            "changefeed %s is in state warning and is tried again in %.0f s; without progress since %s: %s: %s",
            *(self._folder.changefeed, verdict.pause_s, _clock_time(self.since), code, message),
        )
        return Answer(Then.AGAIN, verdict.pause_s)

    def note(self) -> None:
        """Write into the changefeed's durable state that it failed: a run on another host finds it there."""
        if self.state is not State.FAILED or self.error is None or self.error["code"] == Fenced.code:
            return  # a process that runs writes its state itself; so does another driver that has taken over
        try:
            self._folder.save_state(self.state, self.error)
        except TidemillError as error:
            log.warning("the state of changefeed %s cannot be noted: %s", self._folder.changefeed, error.message)

    def told(self, said: Mapping[str, Any], pid: int | None) -> dict[str, Any]:
        """What `status` shows instead of delivery.json (`said`) while the process that runs has not written it yet."""
        if said.get("pid") == pid or said.get("state") == State.FINISHED:
            return {}
        told: dict[str, Any] = {"state": self.state, "error": self.error, "retry_at": self.retry_at, "running": pid is not None}
        if pid is not None:
            told |= {"pid": pid, "last_batch": {}}
        return told | {"warning_since": self.since if self.state is State.WARNING else None}

    def _move(self, event: Event) -> None:
        self.state = after(self.state, event)

    def _said(self, pid: int) -> tuple[Status, bool]:
        """What stands in delivery.json, and whether the process that ended wrote it. The number of a process alone does not tell: a new one
        may get the number of one before."""
        found: dict[str, Any] = self._folder.status() or {}
        said = Status(**{**found, "changefeed": self._folder.changefeed})
        own = said.pid == pid and said.updated_at != self._written_before
        if not own:
            said.begun, said.warning_since = False, None
        return said, own

    def _save(self, said: Status) -> None:
        """Write delivery.json in the place of the process, which is gone."""
        said.state, said.error, said.retry_at = self.state, self.error, self.retry_at
        said.warning_since = self.since if self.state is State.WARNING else None
        said.failed_at = self.since if self.state is State.FAILED else None
        said.running = False
        self._folder.save_status(said)


def _clock_time(moment: float) -> str:
    return datetime.fromtimestamp(moment).astimezone().isoformat(" ", "seconds")
