"""Watches an event loop: a callback that takes longer than 100 ms leaves streams unanswered. Works with any loop, including uvloop.

A thread repeatedly asks the loop for an answer. While none comes, it examines the loop's thread: which callback runs (at the bottom of the
stack), and how long it has worked or been blocked. On an overloaded machine a thread may wait for a CPU, or for another thread that holds
the interpreter's lock and waits for a CPU. The kernel counts these waits for each thread, and they are subtracted. It counts a wait when it
is over, so a callback is judged by its whole time so far, and again when it has ended. So a report shows only what the callback itself did,
with its stack at that moment.

A callback in C that holds the interpreter's lock also stops the watching thread. Such a stall is found afterwards, by the CPU time of the
loop's thread; its stack shows what ran next.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import CodeType, FrameType, TracebackType

LIMIT = 0.1
TICK = 0.05
IDLE_SHARE, IDLE_TICKS = 0.04, 8
"""While the loop's thread takes less of a CPU than this and runs no callback, it is not asked, and looked at only every eighth tick: asking
costs more than an idle loop itself."""
TELL_EVERY = 60.0  # seconds between two warnings about the same place
TASKS = "/proc/self/task"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stall:
    """A callback that held an event loop for too long."""

    seconds: float
    stack: tuple[str, ...]
    """The stack as in a traceback, from the callback inwards."""
    files: tuple[str, ...]
    """The code objects of the stack."""
    blind: bool
    """C code held the interpreter's lock: the stack shows what ran right after it."""

    def __str__(self) -> str:
        what = "C code that holds the interpreter's lock, before this ran:" if self.blind else "this ran:"
        return f"the event loop stood still for {self.seconds * 1000:.0f} ms: {what}\n{''.join(self.stack)}".rstrip()


@dataclass(frozen=True, slots=True)
class Moment:
    """Clock readings in seconds: wall time; CPU time of the loop's thread; how long the watching thread has waited for a CPU, and how long
    all threads together (-1: not measured). `hole`: the longest time since the last moment in which the watching thread ran none of its own
    code (-1: all of it). A reading takes many lines of code, and while the loop is busy each may wait for the interpreter's lock."""

    wall: float
    cpu: float
    own_wait: float
    all_waits: float = -1.0
    hole: float = -1.0


def spent(before: Moment, now: Moment, tick: float) -> tuple[float, bool]:
    """Return how long the loop's thread surely worked or was blocked between two moments, and whether the watching thread could not run
    meanwhile."""
    gap, cpu = now.wall - before.wall, now.cpu - before.cpu
    unseen = (gap if now.hole < 0 else now.hole) - (now.own_wait - before.own_wait)
    if unseen > 2 * tick:  # the watching thread had a CPU and not the lock, or the whole process was stopped
        return min(cpu, unseen), True
    return worked(before, now), False


def worked(before: Moment, now: Moment) -> float:
    """Return how long the loop's thread surely worked or was blocked between two moments in which the watching thread could run."""
    gap, cpu = now.wall - before.wall, now.cpu - before.cpu
    if before.all_waits < 0 or now.all_waits < 0:
        return min(cpu, gap)
    return max(min(cpu, gap), gap - max(now.all_waits - before.all_waits, 0.0))


class Held:
    """How long one callback has surely held the loop. `first`: seconds before the watch saw it."""

    def __init__(self, now: Moment, first: float) -> None:
        self._since, self._first = now, first

    def until(self, now: Moment) -> float:
        """Return the seconds until a moment. They may be fewer than those until an earlier one: a wait for a CPU ended meanwhile."""
        return self._first + worked(self._since, now)

    def skip(self, before: Moment, now: Moment) -> None:
        """Leave out the time between the last two moments."""
        self._first, self._since = self.until(before), now


def log_stall(stall: Stall) -> None:
    """Log a warning with the stack."""
    _log.warning("%s", stall)


class StallWatch:
    """`with StallWatch():` in a coroutine watches the loop that runs it. `tell` is called on the watching thread."""

    def __init__(self, tell: Callable[[Stall], None] | None = None, limit: float = LIMIT, tick: float | None = None) -> None:
        self.stalls = 0
        self._tell, self.limit, self.tick = tell or log_stall, limit, tick or TICK
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stalls", daemon=True)
        self._answered = True
        self._told: dict[CodeType | None, float] = {}
        self._alive, self._hole = 0.0, 0.0

    def __enter__(self) -> StallWatch:
        self._loop = asyncio.get_running_loop()
        self._ident, self._tid = threading.get_ident(), threading.get_native_id()
        self._below = _codes_below_callbacks(sys._getframe())
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()

    # ------------------------------------------------------------------ the watching thread

    def _run(self) -> None:
        held, callback, stall = None, None, None
        self._alive = time.monotonic()
        before, pause = self._moment(pending=False), self.tick
        while not self._over.wait(pause):
            pending = not self._answered
            now = self._moment(pending or stall is not None)
            took, blind = spent(before, now, pause)
            frames = self._callback()
            is_idle = not pending and not frames and now.cpu - before.cpu < IDLE_SHARE * (now.wall - before.wall)
            if blind and took > self.limit:
                self._report(self._stall(took, frames, blind=True), None)
            if blind and held is not None:
                held.skip(before, now)
            found = frames[0] if frames and pending else None
            if found is not callback:
                if stall is not None and callback is not None and held is not None:
                    self._report_ended(stall, held.until(now), callback.f_code)
                callback, stall = found, None  # keeps the frame alive: a later call of the function has another one
                held = Held(now, 0.0 if blind else min(took, self.tick))  # it may have begun just now
            if pending and frames and held is not None:
                seconds = held.until(now)
                if seconds <= self.limit:
                    stall = None
                elif stall is None:
                    stall = self._stall(seconds, frames)
                else:
                    stall = replace(stall, seconds=seconds)
            before, pause = now, min(2 * pause, IDLE_TICKS * self.tick) if is_idle else self.tick
            del frames, found
            if not pending and not is_idle:
                self._ask()

    def _report_ended(self, stall: Stall, seconds: float, code: CodeType) -> None:
        """Report a callback that has ended, unless it turns out that it only waited for a CPU."""
        seconds = min(seconds, stall.seconds)
        if seconds > self.limit:
            self._report(replace(stall, seconds=seconds), code)

    def _moment(self, pending: bool) -> Moment:
        self._runs()
        cpu, _ = self._schedstat(self._tid)
        _, own = self._schedstat(threading.get_native_id())
        waits = sum(self._schedstat(int(tid))[1] for tid in os.listdir(TASKS)) if pending else -1.0  # noqa: PTH208 - often
        hole, self._hole = self._hole, 0.0
        return Moment(self._alive, cpu, own, waits, hole)

    def _schedstat(self, tid: int) -> tuple[float, float]:
        found = _schedstat(tid)
        self._runs()
        return found

    def _runs(self) -> None:
        """Note that the watching thread has a CPU and the interpreter's lock."""
        now = time.monotonic()
        self._hole, self._alive = max(self._hole, now - self._alive), now

    def _ask(self) -> None:
        self._answered = False
        try:
            self._loop.call_soon_threadsafe(self._answer)
        except RuntimeError:  # the loop is closed
            self._over.set()

    def _answer(self) -> None:
        self._answered = True

    def _callback(self) -> list[FrameType]:
        """Return the stack of the loop's thread, from the callback inwards; empty if the loop waits or runs C code directly."""
        chain = stack_of(self._ident)
        first = next((i for i, f in enumerate(chain) if f.f_code not in self._below), len(chain))
        inner = chain[first:]
        return [] if inner and inner[0].f_code.co_filename.endswith("selectors.py") else inner

    def _stall(self, seconds: float, frames: list[FrameType], *, blind: bool = False) -> Stall:
        summary = traceback.StackSummary.extract((f, f.f_lineno) for f in frames)
        return Stall(seconds, tuple(summary.format()), tuple(one.filename for one in summary), blind)

    def _report(self, stall: Stall, code: CodeType | None) -> None:
        self.stalls += 1
        now = time.monotonic()
        if now - self._told.get(code, -TELL_EVERY) >= TELL_EVERY:
            self._told[code] = now
            self._tell(stall)


def stack_of(thread: int) -> list[FrameType]:
    """Return the stack of a running thread, given by its identifier, the outermost frame first.

    CPython 3.11 makes a frame's object when it is first asked for, which may start a garbage collection. Whatever that closes may release
    the interpreter's lock: the other thread returns from the frame, and the interpreter crashes. So nothing is collected meanwhile.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        frame = sys._current_frames().get(thread)
        chain: list[FrameType] = []
        while frame is not None:
            chain.append(frame)
            frame = frame.f_back
    finally:
        if collects:
            gc.enable()
    chain.reverse()
    return chain


def _codes_below_callbacks(frame: FrameType | None) -> frozenset[CodeType]:
    """Return the code objects that run the loop: those below the outermost coroutine of this stack."""
    chain: list[FrameType] = []
    while frame is not None:
        chain.append(frame)
        frame = frame.f_back
    outermost = max((i for i, f in enumerate(chain) if f.f_code.co_flags & inspect.CO_COROUTINE), default=-1)
    return frozenset(f.f_code for f in chain[outermost + 1 :])


def _schedstat(tid: int) -> tuple[float, float]:
    """Return the seconds that a thread ran on a CPU, and waited for one. Zeros if the thread is gone or the kernel does not count."""
    try:
        with open(f"{TASKS}/{tid}/schedstat", "rb", buffering=0) as f:
            cpu, wait, _ = f.read(64).split()
    except (OSError, ValueError):
        return 0.0, 0.0
    return int(cpu) / 1e9, int(wait) / 1e9
