"""The Spark half of a capture in groups: one job whose tasks each pull some partitions of the log for as long as the capture runs.

    python -m tidemill.capture.spark.groups --master MASTER --groups N --job J --memory-quota BYTES --scratch DIR

The coordinator starts this driver with credentials in its environment, and again when it dies, with a greater J. A task that is lost, with
its executor or because it ended with an error, is run again by Spark; the coordinator decides which attempt counts, and the log keeps the
others out. On stdin the coordinator may write `kill ID`: a task attempt that it hears nothing of any more. The driver ends with its stdin.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from tidemill.delivery.machine.failures import JobLost
from tidemill.errors import ConfigError, TidemillError, UpstreamUnavailable
from tidemill.process.ending import fail
from tidemill.process.places import with_retries
from tidemill.spark.jobs import NOT_INSTALLED, cause_of

FAILURES = 100
"""Of one task, then the whole job begins again: where no executor can run a group at all, this tells within a minute."""

SETTINGS = {
    "spark.task.maxFailures": str(FAILURES),
    "spark.speculation": "false",
    "spark.dynamicAllocation.enabled": "false",
}
"""Tasks end when the capture does: one that is slow is not a straggler, and one that fails is to be tried again."""

JAVA_MEMORY = "512m"
PYTHON_BYTES = 512 << 20
"""Of a group's process besides the memory quota."""

PAUSE_S = 1.0

_log = logging.getLogger("tidemill.capture.spark.groups")


def sizes(groups: int, quota: int) -> dict[str, str]:
    """An executor with one core for each group, no more of the cluster than that, and room for what a group holds outside of Java."""
    return {
        "spark.executor.cores": "1",
        "spark.executor.instances": str(groups),
        "spark.cores.max": str(groups),
        "spark.executor.memory": JAVA_MEMORY,
        "spark.executor.memoryOverhead": f"{(quota + PYTHON_BYTES) >> 20}m",
    }


def pull(credentials: Credentials, job: int, level: str, groups: Iterable[int]) -> Iterator[int]:
    """For RDD.mapPartitions: one group, until its coordinator says that it is over."""
    context = TaskContext.get()
    assert context is not None, "runs in Spark's workers"
    for group in list(groups):
        logs.setup(level, None, part=f"group {group}")
        attempt = job * ATTEMPTS + context.attemptNumber()
        place = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
        with tempfile.TemporaryDirectory(prefix="tidemill-group-", dir=place) as scratch:
            outcome = uvloop.run(Group(credentials, group, attempt, Path(scratch), context.taskAttemptId()).run())
        if outcome is Outcome.LOST:
            time.sleep(PAUSE_S)  # Spark has none of its own
            raise UpstreamUnavailable(f"group {group}, attempt {attempt} has lost its coordinator, or its place")
        yield group


def run(credentials: Credentials, options: argparse.Namespace, kills: Kills) -> None:
    """One job, to its end. Raises JobLost, NoJava, ConfigError where executors cannot run Tidemill."""
    try:
        with ExitStack() as stack:
            _run(credentials, options, kills, stack)
    except (Py4JError, PySparkException) as error:
        if NOT_INSTALLED.search(str(error)):
            raise ConfigError(
                f"executors of {options.master} cannot run a group: {cause_of(str(error))}",
                hint="Install the same Tidemill on every machine of the cluster; PYSPARK_PYTHON names the Python that has it.",
            ) from error
        raise JobLost(f"Spark at {options.master} gave the groups' job up: {cause_of(str(error))}") from error


def _run(credentials: Credentials, options: argparse.Namespace, kills: Kills, stack: ExitStack) -> None:
    from tidemill.spark.session import start_session, stop_session

    session: Any = start_session(
        options.scratch / "groups-spark.log",
        master=with_retries(options.master, FAILURES),
        name="tidemill capture",
        extra=SETTINGS,
        defaults=sizes(options.groups, options.memory_quota),
        host=credentials.host,
    )
    stack.callback(stop_session, session)
    context = session.sparkContext
    kills.context = context._jsc.sc()
    _log.info("Spark at %s runs %d groups as tasks (%s)", options.master, options.groups, context.applicationId)
    work: Callable[[Iterable[int]], Iterator[int]] = partial(pull, credentials, options.job, options.log_level)
    context.parallelize(range(options.groups), options.groups).mapPartitions(work).collect()


class Kills:
    """The coordinator's orders on stdin."""

    def __init__(self) -> None:
        self.context: Any = None  # Java's SparkContext, once there is one

    def heard(self, line: bytes) -> None:
        """`kill ID`. On the lifeline's thread."""
        word, _, number = line.decode(errors="replace").strip().partition(" ")
        if word == "kill" and number.isdigit() and self.context is not None:
            try:
                self.context.killTaskAttempt(int(number), True, "its coordinator does not hear of it any more")
            except Py4JError as error:
                _log.warning("task attempt %s cannot be killed: %s", number, cause_of(str(error)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    from tidemill.process import lifeline

    parser = argparse.ArgumentParser(prog="python -m tidemill.capture.spark.groups", description=__doc__)
    parser.add_argument("--master", required=True)
    parser.add_argument("--groups", type=int, required=True)
    parser.add_argument("--job", type=int, required=True)
    parser.add_argument("--memory-quota", type=int, required=True, help="bytes, of a group")
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-file", type=Path)
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the coordinator's: it lets groups end first
    kills = Kills()
    lifeline.hold(heard=kills.heard)
    try:
        logs.setup(options.log_level, options.log_file, part="groups")
        credentials = Credentials.from_environment()
        run(credentials, options, kills)
    except TidemillError as error:
        fail(error)


if __name__ == "__main__":
    main()
