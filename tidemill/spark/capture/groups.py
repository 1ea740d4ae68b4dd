"""The Spark side of a capture in groups: one job whose tasks each pull some partitions of the log while the capture runs.

The coordinator starts this driver, `python -m tidemill.spark.capture.groups`, with a `JobOrder`. When the driver dies, it starts another
with a greater number of the job. Spark runs a task again that is lost with its executor or fails. The coordinator decides which attempt
counts, and the log shuts out the others. The coordinator may write `kill ID` to stdin: the id of a task attempt that has gone silent. The
driver ends when its stdin ends.
"""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import PySparkException

from tidemill import logs
from tidemill.capture.groups.credentials import Credentials
from tidemill.capture.groups.group import Group, Outcome
from tidemill.capture.groups.launch import ATTEMPTS
from tidemill.capture.groups.orders import JobOrder
from tidemill.delivery.machine.failures import JobLost
from tidemill.errors import ConfigError, TidemillError, UpstreamUnavailable
from tidemill.process import lifeline, orders
from tidemill.process.ending import fail
from tidemill.process.places import with_retries
from tidemill.spark.jobs import NOT_INSTALLED, cause_of

FAILURES = 100
"""Failures of one task after which the whole job begins again. If no executor can run a group at all, this shows within a minute."""

SETTINGS = {
    "spark.task.maxFailures": str(FAILURES),
    "spark.speculation": "false",
    "spark.dynamicAllocation.enabled": "false",
}
"""Tasks end when the capture ends: a slow task is not a straggler, and a failed one is to be tried again."""

JAVA_MEMORY = "512m"
PYTHON_BYTES = 512 << 20
"""Memory of a group's process besides the memory quota."""

PAUSE_S = 1.0

_log = logging.getLogger("tidemill.spark.capture.groups")


def sizes(groups: int, quota: int) -> dict[str, str]:
    """Return the Spark settings: an executor with one core for each group, no more cores than that, and memory for what a group holds
    outside Java."""
    return {
        "spark.executor.cores": "1",
        "spark.executor.instances": str(groups),
        "spark.cores.max": str(groups),
        "spark.executor.memory": JAVA_MEMORY,
        "spark.executor.memoryOverhead": f"{(quota + PYTHON_BYTES) >> 20}m",
    }


def pull(credentials: Credentials, job: int, level: str, groups: Iterable[int]) -> Iterator[int]:
    """Run one group until its coordinator ends it. For RDD.mapPartitions."""
    context = TaskContext.get()
    assert context is not None, "runs in Spark's workers"
    for group in list(groups):
        logs.setup(level, None, part=f"group {group}")
        attempt = job * ATTEMPTS + context.attemptNumber()
        place = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
        with tempfile.TemporaryDirectory(prefix="tidemill-group-", dir=place) as scratch:
            outcome = uvloop.run(Group(credentials, group, attempt, Path(scratch), context.taskAttemptId()).run())
        if outcome is Outcome.LOST:
            time.sleep(PAUSE_S)  # Spark does not pause before it tries again
            raise UpstreamUnavailable(f"group {group}, attempt {attempt} has lost its coordinator, or was replaced")
        yield group


def run(order: JobOrder, kills: Kills) -> None:
    """Run one job to its end. Raises JobLost, NoJava; ConfigError if executors cannot run Tidemill."""
    try:
        with ExitStack() as stack:
            _run(order, kills, stack)
    except (Py4JError, PySparkException) as error:
        if NOT_INSTALLED.search(str(error)):
            raise ConfigError(
                f"executors of {order.master} cannot run a group: {cause_of(str(error))}",
                hint="Install the same Tidemill on every machine of the cluster; PYSPARK_PYTHON names the Python that has it.",
            ) from error
        raise JobLost(f"Spark at {order.master} gave the groups' job up: {cause_of(str(error))}") from error


def _run(order: JobOrder, kills: Kills, stack: ExitStack) -> None:
    from tidemill.spark.session import start_context, stop_spark

    context: Any = start_context(
        order.scratch / "groups-spark.log",
        master=with_retries(order.master, FAILURES),
        name="tidemill capture",
        extra=SETTINGS,
        defaults=sizes(order.groups, order.memory_quota),
        host=order.credentials.host,
    )
    stack.callback(stop_spark, context)
    kills.context = context._jsc.sc()
    _log.info("Spark at %s runs %d groups as tasks (%s)", order.master, order.groups, context.applicationId)
    work: Callable[[Iterable[int]], Iterator[int]] = partial(pull, order.credentials, order.job, order.log_level)
    context.parallelize(range(order.groups), order.groups).mapPartitions(work).collect()


class Kills:
    """The coordinator's commands on stdin."""

    def __init__(self) -> None:
        self.context: Any = None  # Java's SparkContext, once there is one

    def heard(self, line: bytes) -> None:
        """Handle `kill ID`. Called on the lifeline's thread."""
        word, _, number = line.decode(errors="replace").strip().partition(" ")
        if word == "kill" and number.isdigit() and self.context is not None:
            try:
                self.context.killTaskAttempt(int(number), True, "its coordinator gets no reports of it any more")
            except Py4JError as error:
                _log.warning("task attempt %s cannot be killed: %s", number, cause_of(str(error)))


def main() -> None:
    """Entry point."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the coordinator, which lets groups end first
    kills = Kills()
    try:
        order = orders.take(JobOrder)
        lifeline.hold(heard=kills.heard)
        logs.setup(order.log_level, order.log_file, part="groups")
        run(order, kills)
    except TidemillError as error:
        fail(error)


if __name__ == "__main__":
    main()
