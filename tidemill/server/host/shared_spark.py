"""One Spark session for all changefeeds of a host. It starts in the background, so that what is idle does not wait for it.

Each changefeed has a pool of Spark's fair scheduler, so that a backlog of one leaves others their share. A task whose sink does not answer
keeps its place until it gives up. So a master on this machine has many more places than cores, and a changefeed whose last attempt
failed runs one task at a time.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidemill.delivery.machine.failures import Stopped
from tidemill.delivery.work_item import TaskResult, WorkItem
from tidemill.errors import TidemillError
from tidemill.process.places import is_in_process

log = logging.getLogger(__name__)

PLACES = 64
"""Tasks that a master on this machine runs at once, at least. A place costs nothing while no task is in it."""
POLL_S = 0.2


class SharedSpark:
    """The session."""

    def __init__(self, log_file: Path, master: str | None, user: Mapping[str, str]) -> None:
        self._log_file, self._master, self._user = log_file, master, user
        self._begun, self._started = False, threading.Event()
        self._session: Any = None
        self._error: TidemillError | None = None
        self.cores = os.cpu_count() or 1
        """How many tasks a changefeed runs at once, at most, where the master is on this machine."""

    def start(self) -> None:
        """Start it in a thread. Nothing happens if it has been started."""
        if not self._begun:
            self._begun = True
            threading.Thread(target=self._start, name="spark", daemon=True).start()

    def _start(self) -> None:
        from tidemill.spark.session import start_session

        local = is_in_process(self._master)
        master = f"local[{max(PLACES, 4 * self.cores)}]" if local and self._master in (None, "local") else self._master
        try:
            self._session = start_session(
                self._log_file, master=master, name="tidemill server", user=self._user, extra={"spark.scheduler.mode": "FAIR"}
            )
            log.info("Spark %s is up at %s", self._session.version, master)
        except TidemillError as error:
            self._error = error
        self._started.set()

    @property
    def error(self) -> TidemillError | None:
        """Why it did not start."""
        return self._error

    def is_lost(self) -> bool:
        """Whether its Java process was there and is gone."""
        process = getattr(getattr(self._session and self._session.sparkContext, "_gateway", None), "proc", None)
        return process is not None and process.poll() is not None

    def stop(self) -> None:
        """Stop the session, if there is one."""
        if self._session is not None:
            from tidemill.spark.session import stop_session

            stop_session(self._session)

    def context(self, stop: threading.Event) -> Any:
        """Return Spark's context, once it is there. Raises Stopped, SparkUnavailable and what else a start refuses."""
        while not self._started.wait(POLL_S):
            if stop.is_set():
                raise Stopped("stopped while Spark was starting")
        if self._error is not None:
            raise self._error
        return self._session.sparkContext


class PoolRunner:
    """Runs the batches of one changefeed in a pool of its own. A `batch.JobRunner`."""

    def __init__(self, spark: SharedSpark, feed: str, stop: threading.Event, tell: Callable[[TidemillError], None]) -> None:
        self._spark, self._feed, self._stop, self._tell = spark, feed, stop, tell
        self._runner: Any = None
        self.in_trouble = False
        """Its last attempt failed."""

    @property
    def parallelism(self) -> int:
        runner = self._opened()
        if self.in_trouble:
            return 1
        found: int = runner.parallelism
        return min(found, self._spark.cores) if runner.is_here else found

    def run(self, items: Sequence[WorkItem]) -> list[TaskResult]:
        """Raises as `SparkRunner.run`."""
        results: list[TaskResult] = self._opened().run(items)
        return results

    def _opened(self) -> Any:
        if self._runner is None:
            from tidemill.spark.jobs import SparkRunner

            context = self._spark.context(self._stop)
            context.setLocalProperty("spark.scheduler.pool", self._feed)
            self._runner = SparkRunner(context, f"tidemill-{self._feed}", stop=self._stop, tell=self._tell)
        return self._runner
