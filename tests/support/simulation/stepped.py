"""The receiver's workers under a simulator: a job runs when the simulator says so, on its thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Jobs(Executor):
    """Keeps jobs until it is told to do one."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        self._waiting.append((future, partial(fn, *args, **kwargs)))
        return future

    def do_one(self) -> None:
        """The oldest job."""
        future, job = self._waiting.popleft()
        try:
            future.set_result(job())
        except BaseException as e:  # as an executor does: it belongs to who asks for the result
            future.set_exception(e)


class Stepped:
    """Workers whose every job is a step of the simulator. `clock` is its time, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.seal, self.spill = Jobs(), Jobs()
        self.now = clock

    def wait(self, jobs: Collection[Future[Any]]) -> None:
        for worker in (self.spill, self.seal):
            while len(worker) and not all(job.done() for job in jobs):
                worker.do_one()
        assert all(job.done() for job in jobs), "a job that nobody does"

    def wait_for_any(self, jobs: Collection[Future[Any]], timeout: float) -> None:
        raise AssertionError("the simulator does not wait: it looks at Receiver.full")

    def shutdown(self) -> None:
        while len(self.spill) or len(self.seal):
            (self.spill if len(self.spill) else self.seal).do_one()
