"""The executors of a Spark application: how many tasks they run at once, and whether any executor takes tasks at all."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

from tidemill.errors import TidemillError, redact
from tidemill.process.places import is_in_process

log = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
TOLD_AFTER_S = 30.0
TOLD_EVERY_S = 60.0


class NoExecutor(TidemillError):
    """No executor takes the tasks of a batch: the cluster is full, has none, or its master is gone."""

    code = "TM:ErrNoExecutor"
    retryable = True


class Executors:
    """The executors of one application."""

    def __init__(self, context: SparkContext, tell: Callable[[TidemillError], None] = lambda error: None) -> None:
        """`tell` is called, from a thread, with each NoExecutor that is logged."""
        self._context, self._tell = context, tell
        self.here = is_in_process(context.master)

    @property
    def cores(self) -> int:
        """How many tasks run at once on the executors that are there now (spark.default.parallelism, if the user set it).

        With dynamic allocation Spark asks for more executors when tasks wait. Then this is twice as much, up to what Spark may ask for.
        """
        now = max(1, int(self._context.defaultParallelism))
        return now if self.here else max(now, min(2 * now, self._allowed()))

    def _allowed(self) -> int:
        """How many tasks may run at once with all executors that dynamic allocation may ask for; 0 without dynamic allocation."""
        conf = self._context.getConf()
        if conf.get("spark.dynamicAllocation.enabled", "false") != "true":
            return 0
        most, cores = conf.get("spark.dynamicAllocation.maxExecutors", ""), conf.get("spark.executor.cores", "1")
        return int(most) * int(cores) if most and cores and most.isdecimal() and cores.isdecimal() else 1 << 31

    @property
    def alive(self) -> int:
        """How many executors there are."""
        java: Any = self._context
        return max(0, int(java._jsc.sc().getExecutorMemoryStatus().size()) - 1)  # the driver is among them

    def waiting(self) -> bool:
        """Whether there are tasks and none of them runs."""
        tracker = self._context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        left = [s for s in stages if s is not None and s.numCompletedTasks < s.numTasks]
        return bool(left) and not any(s.numActiveTasks for s in left)

    @contextmanager
    def watched(self, what: str, group: str, stop: threading.Event) -> Iterator[None]:
        """While a job runs: warn if no executor takes its tasks. `stop` then cancels the job, which would not end by itself."""
        if self.here:
            yield
            return
        over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(what, group, stop, over), name="executors", daemon=True)
        watch.start()
        try:
            yield
        finally:
            over.set()

    def _watch(self, what: str, group: str, stop: threading.Event, over: threading.Event) -> None:
        since, told = time.monotonic(), 0.0
        while not over.wait(LOOK_EVERY_S):
            try:
                if not self.waiting():
                    since = time.monotonic()
                    continue
                if stop.is_set():
                    self._context.cancelJobGroup(group)
                    return
                now = time.monotonic()
                if now - since >= TOLD_AFTER_S and now - told >= TOLD_EVERY_S:
                    told = now
                    self._say(what, now - since)
            except (Py4JError, OSError) as error:
                log.debug("executors cannot be looked at: %s", error)

    def _say(self, what: str, seconds: float) -> None:
        alive, master = self.alive, redact(str(self._context.master))
        found = f"{alive} executors are registered and none takes it" if alive else "no executor is registered"
        error = NoExecutor(
            f"{what} has waited {seconds:.0f} s for {master} to run it: {found}",
            hint="The cluster is full, its workers or its master are gone, or executors cannot reach this machine; see the Spark log.",
        )
        log.warning("%s: %s", error.code, error)
        self._tell(error)
