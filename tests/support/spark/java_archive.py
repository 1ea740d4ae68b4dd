"""`python -m tests.support.spark.java_archive`: makes an archive of Spark's classes, so that the Spark sessions of the tests start sooner.

Half of what a start costs is Java loading and checking the same classes. Java does this once for an archive, see "class data sharing" in
its documentation. It does not use an archive that was made from other jars or by another Java.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from pathlib import Path

import psutil

ARCHIVE = Path(__file__).parents[3] / ".tidemill" / "java" / "spark.jsa"
OPTIONS = "SPARK_SUBMIT_OPTS"
"""Spark's scripts add what it holds to the command line of a driver's Java."""


def use() -> None:
    """Let Spark sessions that this process and its children start use the archive, if it is there."""
    if ARCHIVE.is_file() and OPTIONS not in os.environ:
        os.environ[OPTIONS] = f"-XX:SharedArchiveFile={ARCHIVE} -Xlog:disable -Xlog:all=error:stderr"


def make() -> None:
    """Deliver a recorded log, and keep the classes that Java had loaded when it ended."""
    from tests.support.changelog.logs import golden_log
    from tests.support.delivery.runner_process import command
    from tidemill.changelog.history import load_history
    from tidemill.changelog.reader import LogReader

    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    new = ARCHIVE.with_name("new.jsa")
    new.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as name:
        history = load_history(LogReader(golden_log(Path(name) / "log")))
        target = history.barriers(history.start_ts, history.resolved_ts)[2]
        variables = os.environ | {OPTIONS: f"-XX:ArchiveClassesAtExit={new}"}
        started: set[psutil.Process] = set()
        with subprocess.Popen(command(Path(name), "--target-ts", str(target)), env=variables) as driver:
            while driver.poll() is None:
                with contextlib.suppress(psutil.NoSuchProcess):
                    started |= {p for p in psutil.Process(driver.pid).children(recursive=True) if p.name() == "java"}
                time.sleep(0.1)
        psutil.wait_procs(started)  # Java ends behind the driver, and writes the archive then
    new.replace(ARCHIVE)


if __name__ == "__main__":
    make()
