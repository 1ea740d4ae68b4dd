"""Waits for storage that is away: repeats a failed request, with pauses of 1 s to 30 s, without limit.

An outage is logged when it begins, once a minute while it lasts, and when it ends: as soon as one waiting request succeeds. If another
fails after that, it is a new outage. LogUnavailable is waited for, and a full disk where the caller wants that. A request must be safe to
repeat: it may have been done already.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from tidemill.errors import LogUnavailable, TidemillError, redact

FIRST_S, LONGEST_S = 1.0, 30.0
TELL_EVERY_S = 60.0
START_S = 30.0
"""How long to wait for a storage that was never reached: its address may be wrong."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outage:
    """An outage of the storage."""

    since: float  # Unix seconds
    error: TidemillError

    def as_dict(self) -> dict[str, Any]:
        """Return the outage as status files have it."""
        since = datetime.fromtimestamp(self.since, UTC).isoformat(timespec="seconds")
        return {"since": since, "seconds": round(max(0.0, time.time() - self.since)), "message": redact(self.error.message)}


def pause_after(failures: int) -> float:
    """Return the seconds to wait after this many failures in a row, from 1 on."""
    return min(LONGEST_S, FIRST_S * 2.0 ** min(failures - 1, 16))


class StorageRetry:
    """Repeats requests of one process to one storage. Every method may be called from any thread; `call_async` and `in_thread` need an
    event loop."""

    def __init__(
        self,
        ended: threading.Event | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[..., None] = _log.warning,
        waits_for: tuple[type[TidemillError], ...] = (LogUnavailable,),
    ) -> None:
        """`ended`: once it is set, nothing waits any more. `waits_for`: the errors that pass by themselves."""
        self._waits_for = waits_for
        self._ended = ended or threading.Event()
        self._clock, self._tell = clock, tell
        self._lock = threading.Lock()
        self._waiting = 0
        self._outage: Outage | None = None
        self._next_word = 0.0

    @property
    def outage(self) -> Outage | None:
        """The current outage; None: nothing waits for the storage."""
        return self._outage

    @property
    def is_over(self) -> bool:
        """Whether waiting has been ended."""
        return self._ended.is_set()

    def end(self) -> None:
        """End all waiting: from now on, a failed request raises at once."""
        self._ended.set()

    def call(self, work: Callable[[], T], within: float | None = None) -> T:
        """Return the result of `work`, repeated until the storage answers. Raises LogUnavailable after `end`, or `within` seconds after the
        first failure."""
        wait = _Wait(self, within)
        try:
            while True:
                try:
                    result = work()
                except self._waits_for as error:
                    if self._ended.wait(wait.pause(error)):
                        raise
                else:
                    wait.back()
                    return result
        finally:
            wait.close()

    async def call_async(self, work: Callable[[], Awaitable[T]], within: float | None = None) -> T:
        """Like `call`, for a coroutine function, on the event loop."""
        wait = _Wait(self, within)
        try:
            while True:
                try:
                    result = await work()
                except self._waits_for as error:
                    if self._ended.is_set():
                        raise
                    await asyncio.sleep(wait.pause(error))
                else:
                    wait.back()
                    return result
        finally:
            wait.close()

    async def in_thread(self, work: Callable[[], T], within: float | None = None) -> T:
        """Like `call_async`, for a function that runs in a thread."""
        return await self.call_async(lambda: asyncio.to_thread(work), within)

    # ---- called by `_Wait`

    def begun(self, error: TidemillError, *, first: bool) -> None:
        """Note that a request waits because of this error."""
        with self._lock:
            self._waiting += first
            now = self._clock()
            since = self._outage.since if self._outage is not None else time.time()
            is_new = self._outage is None
            self._outage = Outage(since, error)
            if not is_new and now < self._next_word:
                return
            self._next_word = now + TELL_EVERY_S
        if is_new:
            self._tell("storage is away and is tried again until it is back: %s", error.message)
        else:
            told = self._outage.as_dict()
            self._tell("storage is away since %s, for %d s, and is tried again: %s", told["since"], told["seconds"], error.message)

    def over(self, *, back: bool) -> None:
        """Note that a request no longer waits: the storage is `back`, or the request gave up."""
        with self._lock:
            self._waiting -= 1
            if self._outage is None or not (back or self._waiting == 0):
                return
            ended, self._outage = self._outage, None
        if back:
            self._tell("storage is back after %d s", ended.as_dict()["seconds"])


class _Wait:
    """A request that may have to wait."""

    def __init__(self, retry: StorageRetry, within: float | None) -> None:
        self._retry = retry
        self._within = within
        self._deadline: float | None = None  # counted from the first failure
        self._failures = 0
        self._waits = False

    def pause(self, error: TidemillError) -> float:
        """Return the seconds until the next attempt. Raises the error if there is none."""
        self._failures += 1
        pause = pause_after(self._failures)
        if self._deadline is None and self._within is not None:
            self._deadline = time.monotonic() + self._within
        if self._retry.is_over or (self._deadline is not None and time.monotonic() + pause > self._deadline):
            raise error
        self._retry.begun(error, first=not self._waits)
        self._waits = True
        return pause

    def back(self) -> None:
        if self._waits:
            self._waits = False
            self._retry.over(back=True)

    def close(self) -> None:
        if self._waits:
            self._waits = False
            self._retry.over(back=False)
