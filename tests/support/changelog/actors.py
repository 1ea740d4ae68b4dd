"""Threads that run one at a time and can be stopped at each step, and ended there.

actor = Actor(lambda: writer.partition(0).publish(…))     # whose storage calls `at_gate` before each request
actor.step()                                              # up to the next request
actor.kill()  or  actor.finish()
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

_actors: dict[int, Actor] = {}


class Killed(BaseException):
    """The process of an actor ended where it stood."""


class Actor:
    """A task that is stopped at its beginning."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_over = False
        self.stands_at = ""
        self._work = work
        self._killed = self._free = False
        self._go, self._stands = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._stands.acquire()

    def _run(self) -> None:
        _actors[threading.get_ident()] = self
        try:
            self.at("the beginning")
            self.result = self._work()
        except BaseException as error:  # the test checks it, whatever it is
            self.error = error
        finally:
            del _actors[threading.get_ident()]
            self.is_over = True
            self._stands.release()

    def at(self, where: str) -> None:
        """Wait here, in the actor's thread, until the test lets it go on."""
        if self._free:
            return
        self.stands_at = where
        self._stands.release()
        self._go.acquire()
        if self._killed:
            self._free = True  # cleanup on the way out stops at no gate
            raise Killed

    def step(self) -> None:
        """Do the current step, and stop before the next."""
        if not self.is_over:
            self._go.release()
            self._stands.acquire()

    def finish(self) -> None:
        """Do the remaining steps. Raises what the work raises."""
        self._free = True
        self.step()
        if self.error is not None:
            raise self.error

    def kill(self) -> None:
        """End the thread at the step where it waits."""
        if not self.is_over:
            self._killed = True
            self.step()


def at_gate(what: str, name: str) -> None:
    """A gate for storages: an actor stops at it, other threads go on."""
    actor = _actors.get(threading.get_ident())
    if actor is not None:
        actor.at(f"{what} {name}")
