"""Waits for the heads of the log to move: told by the file system where the log is a folder, else by looks at it, ever more rarely.

Both are `loop.Heads` of one changefeed that reads the log alone. (The delivery host has one look for all its changefeeds.)
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tidemill.changelog.log_format import HEAD, folders
from tidemill.changelog.reader import LogReader
from tidemill.delivery.clock import Clock
from tidemill.process.file_events import FileEvents

log = logging.getLogger(__name__)

REMOTE_POLL_S, IDLE_POLL_S, AWAY_POLL_S = 0.5, 5.0, 30.0
"""Seconds between two looks at the heads on an object store, where each look is a request; there, while heads do not move; and at storage
that is away."""
LOCAL_POLL_S = 0.05
"""Seconds between two looks at a folder whose file system does not tell of changes."""
LOOK_S, STOP_S = 1.0, 0.25
"""Seconds between two looks if the file system tells of nothing; how often a stop is looked for meanwhile."""
GATHER_S = 0.005
"""All partitions' heads are replaced one after the other: one look is enough for those of so many seconds."""
MISSES = 3
"""So many times in a row the heads moved and the file system did not tell: it does not know what other machines write."""


class Pace:
    """When to look at the heads next. Where each look costs a request (`first_s` > 0), looks that find nothing become rarer."""

    def __init__(self, first_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._first = self._pause = first_s
        self._away = 0.0
        self._clock = clock
        self.next_poll = 0.0

    def polled(self, *, moved: bool, begins: bool) -> None:
        """A look was answered. `moved`: the heads have got further. `begins`: a batch begins; the heads move on while it runs."""
        self._away = 0.0
        self._pause = self._first if moved else min(IDLE_POLL_S, 1.5 * self._pause)
        self.next_poll = 0.0 if begins else self._clock() + self._pause

    def failed(self) -> None:
        """The storage is away."""
        self._away = min(AWAY_POLL_S, max(1.0, 2 * self._away))
        self.next_poll = self._clock() + self._away


class PolledHeads:
    """Waits for the next look at storage that does not tell of changes."""

    def __init__(self, clock: Clock, stop: threading.Event, first_s: float, seconds: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._stop, self._first, self._seconds = clock, stop, first_s, seconds
        self._pace, self._at = Pace(first_s, seconds), 0

    def wait(self, ts: int, seconds: float) -> None:
        """Return when it is time to look, or when the changefeed is to stop. `ts` changes with the last batch: after it, looks are
        frequent again."""
        if ts != self._at:
            self._pace, self._at = Pace(self._first, self._seconds), ts
        self._pace.polled(moved=self._clock.moved, begins=False)
        self._stop.wait(max(0.0, self._pace.next_poll - self._seconds()))


class ToldHeads:
    """Waits until the file system tells that a head of the log was replaced."""

    def __init__(self, events: FileEvents | None, reader: LogReader, clock: Clock, stop: threading.Event) -> None:
        """`events`: None: the system does not tell of anything, and the log is looked at often."""
        self._events, self._reader, self._clock, self._stop = events, reader, clock, stop
        self._folder = Path(reader.storage.location)
        self._watched: set[str] = set()
        self._at = 0
        self._in_vain, self._misses = False, 0

    def wait(self, ts: int, seconds: float) -> None:
        """Return when a head was replaced, when the next batch may begin, or when the changefeed is to stop."""
        if self._in_vain and (self._clock.moved or ts != self._at):
            self._misses += 1
        self._in_vain, self._at = False, ts
        if self._events is None or self._misses >= MISSES:
            self._stop.wait(min(seconds, LOCAL_POLL_S))
        elif self._clock.moved:
            self._is_told(self._events, seconds)
        else:
            self._watch(self._events)
            self._in_vain = not self._is_told(self._events, LOOK_S)
            if not self._in_vain:
                self._misses = 0

    def _watch(self, events: FileEvents) -> None:
        """Watch each folder with a head. A capture may have made more of them since."""
        for name in folders(self._reader.partitions):
            if name not in self._watched and (self._folder / name).is_dir():
                try:
                    events.watch(self._folder / name)
                except OSError as error:
                    _tell(error)
                    self._events = None
                    return
                self._watched.add(name)

    def _is_told(self, events: FileEvents, seconds: float) -> bool:
        """Wait for so long. Return whether the system told of a head meanwhile, or the changefeed is to stop."""
        deadline = time.monotonic() + seconds
        while not self._stop.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if events.wait(HEAD, min(left, STOP_S)):
                self._stop.wait(GATHER_S)
                events.wait(HEAD, 0)
                return True
        return True


def heads_of(stack: ExitStack, reader: LogReader, clock: Clock, stop: threading.Event) -> PolledHeads | ToldHeads:
    """How to wait for this log, to be closed by `stack`."""
    if not reader.storage.local:
        return PolledHeads(clock, stop, min(REMOTE_POLL_S, clock.trigger_s / 2))
    try:
        events = stack.enter_context(FileEvents())
    except OSError as error:
        _tell(error)
        return ToldHeads(None, reader, clock, stop)
    return ToldHeads(events, reader, clock, stop)


def _tell(error: OSError) -> None:
    log.info("the system does not tell of changed files (%s): the log is looked at every %.0f ms", error, 1000 * LOCAL_POLL_S)
