"""The fence: a small file with the epoch in force. A task or a driver with another epoch stops.

Spark reports a failed job at once, but the Python workers of its other tasks live on for a moment and could write after the rows of the
next attempt. On a cluster an executor that is cut off, or a driver that was stopped and wakes up, may live on for much longer. So each
attempt at a batch has an epoch of its own, over restarts and hosts of the driver as well. The file lies in the log's storage, which
executors reach anyway. Only the newest driver can write it (`guarded`); tasks look at it before each chunk, while they wait, and before
they flush.

The file also holds the interval of the attempt: a driver that takes the changefeed over runs the unfinished batch over the same interval.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tidemill.changelog.storage.open import LocalStorage, Storage, open_storage
from tidemill.changelog.storage.outcomes import storage_errors
from tidemill.delivery.guarded import DRIVER, EPOCH, GuardedFile, check_term, parsed
from tidemill.delivery.position import Plan, Ranges
from tidemill.errors import Fenced, TidemillError, redact
from tidemill.statefile import FEED_FILE, Fields

REMOTE_EVERY_S = 1.0
"""A fence on an object store is read this often, and whenever something is about to be published: each look is a request."""
FROM, TO, RANGES = "from_ts", "to_ts", "ranges"

Interval = tuple[int, int]


class BrokenFence(TidemillError):
    """The fence is not where it should be, or does not hold an epoch."""

    code = "TM:ErrFence"


class FenceCheck:
    """A task's look at the fence. Call it often: a remote file is not read each time."""

    def __init__(self, place: str, epoch: int) -> None:
        """`place`: path or URL of the file."""
        self._place, self._epoch = place, epoch
        self._read, self._every_s = _opened(place)
        self._due = 0.0
        self._seen: bytes | None = None  # what was checked already

    def __call__(self, *, now: bool = False) -> None:
        """Raises Fenced if another epoch is in force, LogUnavailable if the fence cannot be read. `now`: read it in any
        case, because something is published next."""
        if self._every_s and not now and time.monotonic() < self._due:
            return
        with storage_errors(self._place):
            data = self._read()
        if data is None or data != self._seen:
            check(parsed(data, self._place), self._epoch, self._place)
            self._seen = data
        self._due = time.monotonic() + self._every_s


def check(found: Mapping[str, Any] | None, epoch: int, place: str) -> None:
    """Raises Fenced if another epoch is in force, BrokenFence if there is no fence."""
    if found is None:
        raise BrokenFence(
            f"{redact(place)} is not there for {socket.gethostname()}",
            hint="Executors have to reach the change log, at the path or URL that the driver knows it by.",
        )
    if found[EPOCH] != epoch:
        raise Fenced(f"epoch {epoch} is over: {found[EPOCH]} has begun, of the driver {found.get(DRIVER)}")


def _opened(place: str) -> tuple[Callable[[], bytes | None], float]:
    """A function that reads the file, and for how many seconds its answer may be kept."""
    if "://" not in place:
        return partial(_local, place), 0.0
    bare, mark, query = place.partition("?")
    folder, _, name = bare.rpartition("/")
    storage = open_storage(folder + mark + query)
    return partial(storage.read, name), 0.0 if storage.local else REMOTE_EVERY_S


def _local(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


class Fence:
    """The driver's side: begins epochs."""

    def __init__(self, storage: Storage, name: str, *, floor: int = 0, term: int = 0) -> None:
        """`floor`: epochs begin above it, whatever the file says. `term`: of the server that leads; 0: no server does."""
        self.driver = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:12]}"
        self._file = GuardedFile(storage, name, self.driver, term=term)
        self._term = term
        self.place = self._file.place
        self._floor = floor
        self._epoch = 0
        self._taken = False
        self._due = 0.0
        self.planned: Interval | None = None
        """The interval of the newest attempt; known once the fence is taken."""
        self.planned_ranges: Ranges = ()
        """The intervals of the log partitions, where they are not equally far."""

    @classmethod
    def at(cls, folder: str | os.PathLike[str], name: str = "epoch") -> Fence:
        """A fence in a local folder."""
        return cls(LocalStorage(os.fspath(folder)), name)

    @property
    def epoch(self) -> int:
        """The epoch in force, as far as this driver knows."""
        return self._epoch

    def look(self) -> int:
        """The epoch in force now, which ends when somebody takes the fence. Raises Fenced if a server of a later term leads, FeedBroken,
        LogUnavailable."""
        found = self._file.read() or {EPOCH: 0}
        check_term(found, self._term, self.place)
        epoch: int = found[EPOCH]
        return max(epoch, self._floor)

    def take(self) -> int:
        """Become the driver: every other one is fenced when this returns. Returns the new epoch.

        Raises LogUnavailable, Fenced if a server of a later term leads."""
        return self._take(None)

    def advance(self, plan: Plan | None) -> int:
        """Begin the next epoch, durably, for an attempt at a batch. Tasks of all earlier epochs stop. `plan`: where a driver that
        takes over has to begin and end the batch; None: no driver takes over, such as from a replay.

        Raises Fenced if another driver has taken over, LogUnavailable.
        """
        if not self._taken:
            return self._take(plan)
        self._plan(plan)
        return self._next()

    def _plan(self, plan: Plan | None) -> None:
        self.planned = (plan.from_ts, plan.to_ts) if plan is not None else None
        self.planned_ranges = plan.ranges if plan is not None else ()

    def _take(self, plan: Plan | None) -> int:
        while True:
            found = self._file.read() or {EPOCH: 0}
            check_term(found, self._term, self.place)
            self._epoch = max(found[EPOCH], self._floor)
            if plan is not None:
                self._plan(plan)
            else:
                self.planned, self.planned_ranges = self._left(found)
            try:
                epoch = self._next()
            except Fenced:
                continue  # another driver took it at the same time
            self._taken = True
            return epoch

    def _left(self, found: Mapping[str, Any]) -> tuple[Interval | None, Ranges]:
        """What an earlier driver was about to deliver. Raises FeedBroken."""
        fields = Fields(found, redact(self.place), FEED_FILE)
        interval = (fields.integer(FROM), fields.integer(TO)) if FROM in fields and TO in fields else None
        return interval, fields.pairs(RANGES, optional=True)

    def _next(self) -> int:
        interval: dict[str, Any] = {FROM: self.planned[0], TO: self.planned[1]} if self.planned is not None else {}
        if interval and self.planned_ranges:
            interval[RANGES] = self.planned_ranges
        self._file.write(interval, self._epoch + 1)
        self._epoch += 1
        return self._epoch

    def check(self, *, now: bool = False) -> None:
        """Check that this driver's epoch is in force, as tasks do. Raises Fenced if another driver has taken over, LogUnavailable."""
        if now or time.monotonic() >= self._due:
            check(self._file.read(), self._epoch, self.place)
            self._due = time.monotonic() + REMOTE_EVERY_S
