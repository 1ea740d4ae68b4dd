"""Starts groups: as processes on this machine, or as the tasks of one Spark job."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from tidemill.capture.groups.orders import GroupOrder, JobOrder
from tidemill.capture.groups.scheduler import Who
from tidemill.process import children, orders
from tidemill.process.supervisor import ChildProcess, Supervisor

STOP_S = 10.0
ATTEMPTS = 1_000_000
"""Attempts per Spark job at most: an attempt's number is the job's times this, plus Spark's."""

_log = logging.getLogger(__name__)


class Launcher(Protocol):
    """Starts and kills groups."""

    launches: bool
    """Whether `launch` starts something. Spark starts all tasks of its job itself, and runs lost ones again."""
    waits_for: str
    """What a group that has not connected waits for, for messages."""

    async def run(self) -> None:
        """Keep the groups' processes or job running, forever. Raises errors that a retry does not fix."""

    def launch(self, group: int, attempt: int) -> None: ...

    def kill(self, group: int, who: Who) -> None:
        """Kill what is left of an attempt that does not count any more."""

    def trouble(self) -> tuple[str, str] | None:
        """Return the error (code and message) that keeps all groups from starting, if there is one."""

    async def stop(self) -> None:
        """End everything that is left."""


class Processes:
    """A process per group, in its own session: Ctrl-C in a terminal is for the coordinator. Calls `on_exit(group, attempt, how)`."""

    launches = True
    waits_for = "its process"

    def __init__(self, order: Callable[[int, int], GroupOrder], on_exit: Callable[[int, int, str], None]) -> None:
        """`order`: of a group and an attempt."""
        self._order, self._on_exit = order, on_exit
        self._processes: dict[tuple[int, int], children.Child] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        await asyncio.Event().wait()

    def trouble(self) -> tuple[str, str] | None:
        return None

    def launch(self, group: int, attempt: int) -> None:
        task = asyncio.ensure_future(self._process(group, attempt))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _process(self, group: int, attempt: int) -> None:
        argv = children.program("tidemill.capture.groups.child")
        try:
            process = await children.start(argv, children.environment(), new_session=True)
        except OSError as e:
            self._on_exit(group, attempt, f"its process cannot be started: {e}")
            return
        process.tell(orders.begin(self._order(group, attempt)))  # its stdin is held open: it ends when its coordinator does
        self._processes[group, attempt] = process
        status = await process.wait()
        del self._processes[group, attempt]
        self._on_exit(group, attempt, f"its process ended with {_named(status)}")

    def kill(self, group: int, who: Who) -> None:
        process = self._processes.get((group, who.attempt))
        if process is not None and process.returncode is None:
            _log.info("group %d: process %d is killed", group, process.pid)
            process.kill()

    async def stop(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_S)
        for process in list(self._processes.values()):
            process.kill()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class SparkJob:
    """One Spark job with a task per group. Its driver is a process that is started again when it dies."""

    launches = False
    waits_for = "Spark, to start or to have a core free on an executor,"

    def __init__(self, order: JobOrder, progress: Callable[[], int]) -> None:
        self._trouble: tuple[str, str] | None = None
        argv = children.program("tidemill.spark.capture.groups")
        self._half = ChildProcess("the groups' Spark", argv, progress, order=lambda: orders.begin(self._numbered(order)))
        self._boss = Supervisor([self._half], until=self._half.name, on_change=self._note)

    def _numbered(self, order: JobOrder) -> JobOrder:
        """Number the next job, so that its attempts are newer than those before."""
        return replace(order, job=self._half.restarts)

    def _note(self) -> None:
        self._trouble = self._half.last_error or self._trouble

    async def run(self) -> None:
        await self._boss.run()
        await asyncio.Event().wait()  # all tasks have ended because they were told to

    def launch(self, group: int, attempt: int) -> None:
        """Do nothing: Spark starts the tasks."""

    def trouble(self) -> tuple[str, str] | None:
        return self._trouble

    def kill(self, group: int, who: Who) -> None:
        process = self._half.process
        if who.task >= 0 and who.attempt // ATTEMPTS == self._half.restarts and process is not None:
            _log.info("group %d: Spark is told to kill task attempt %d", group, who.task)
            if not process.tell(b"kill %d\n" % who.task):
                _log.warning("group %d: its Spark does not take the order", group)

    async def stop(self) -> None:
        process = self._half.process
        if process is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await process.wait()
        self._boss.stop()


def _named(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
