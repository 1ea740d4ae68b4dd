"""Drivers as threads of which one at a time runs, from effect to effect; what happens at each effect is decided elsewhere.

actor = Actor("driver 1", body); actor.start()
actor.effect                 the effect that it is about to take; None: it has ended, see `error`
actor.go(Fate.DONE)          let it take the effect and run to the next
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from tidemill.errors import SinkUnavailable

T = TypeVar("T")
PATIENCE_S = 120.0
"""An actor that takes longer between two effects waits for one that stands still."""


class Killed(BaseException):
    """Stands for the end of a process: no effect follows."""


class Fate(enum.Enum):
    """What becomes of an effect."""

    DONE = "done"
    KILLED_BEFORE = "the process ends before"
    KILLED_AFTER = "the process ends behind"
    AWAY = "is answered 503"
    LOST = "is done, and its answer is lost"
    BEHIND = "shows what was there some changes ago"


class Actor(threading.Thread):
    """A process that can be stopped at its effects. Its body runs in this thread and takes effects by `gate`."""

    def __init__(self, name: str, body: Callable[[Actor], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._body = body
        self._parked, self._gone = threading.Semaphore(0), threading.Semaphore(0)
        self._fate = Fate.DONE
        self._dead = False
        self._turn = threading.Lock()
        self.locks = 0  # that others meet as held while it stands still
        self.behind = False  # while it takes an effect that is to show the past
        self.late = False  # others have gone on while it stood still
        self.effect: str | None = None
        self.effects = 0
        self.error: BaseException | None = None

    def start(self) -> None:
        """Run to the first effect."""
        super().start()
        self._await()

    def run(self) -> None:
        """Run the body, and keep what ended it."""
        try:
            self._body(self)
        except BaseException as error:
            self.error = error
        self.effect = None
        self._parked.release()

    def go(self, fate: Fate) -> None:
        """Decide the effect at which it stands, and wait until it stands at the next or has ended."""
        self._fate = fate
        self._gone.release()
        self._await()

    def _await(self) -> None:
        assert self._parked.acquire(timeout=PATIENCE_S), f"{self.name} came from `{self.effect}` to no other effect"

    def gate(self, effect: str, act: Callable[[], T]) -> T:
        """Take an effect as the scheduler decides."""
        with self._turn:  # a driver's own threads come one after the other
            if self._dead:
                raise Killed
            self.effect = effect
            self.effects += 1
            self._parked.release()
            self._gone.acquire()
            fate = self._fate
            if fate is Fate.KILLED_BEFORE:
                self._dead = True
                raise Killed
            if fate is Fate.AWAY:
                raise SinkUnavailable(f"{effect}: 503 Slow Down")
            self.behind = fate is Fate.BEHIND
            result = act()
            if fate is Fate.KILLED_AFTER:
                self._dead = True
                raise Killed
            if fate is Fate.LOST:
                raise SinkUnavailable(f"{effect}: the connection was closed before an answer came")
            return result


def undisturbed(body: Callable[[Actor], None]) -> None:
    """Run a body to its end. Raises what it raises."""
    actor = Actor("undisturbed", body)
    actor.start()
    while actor.effect is not None:
        actor.go(Fate.DONE)
    if actor.error is not None:
        raise actor.error


def current_actor() -> Actor:
    """Return the actor in whose thread this runs."""
    actor = threading.current_thread()
    assert isinstance(actor, Actor), f"{actor} is no simulated driver"
    return actor


def current_gate() -> Callable[[str, Callable[[], T]], T]:
    """Return the gate of the actor in whose thread this runs."""
    return current_actor().gate


class AtOnce:
    """An executor of the thread that asks: a simulated driver has one."""

    def __init__(self, *given: Any, **more: Any) -> None:
        """Take what an executor takes."""

    def submit(self, work: Callable[..., Any], *given: Any) -> Future[Any]:
        found: Future[Any] = Future()
        try:
            found.set_result(work(*given))
        except Exception as error:
            found.set_exception(error)
        return found

    def shutdown(self) -> None:
        """Do nothing."""

    def __enter__(self) -> AtOnce:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
