"""Starts and stops Spark in a process: its settings, its Java, and the file that its output goes to.

Deliveries need a SparkContext only. A SparkSession loads Spark SQL in Java, which takes more than the rest of the start.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tidemill.errors import SparkUnavailable, TidemillError, redact
from tidemill.process.children import SAFE_PATH, SECRETS
from tidemill.process.places import check_master_reachable, host_for, is_in_process
from tidemill.spark import settings
from tidemill.spark.java.archive import with_archive
from tidemill.spark.start import cause_of_start

log = logging.getLogger(__name__)

NEEDED_JAVA = (17, 21)
"""The first and the last Java that Spark 4.2 runs on. Tidemill is tested with the first."""

LAUNCHER, LAUNCHER_OPTIONS = "SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of the Java that Spark's scripts start only to print the command line of the other one."""

TOLD_AFTER_S, TOLD_EVERY_S = 45.0, 60.0


class NoJava(TidemillError):
    """No Java that Spark can run on was found."""

    code = "TM:ErrNoJava"


def java_version(home: Path) -> int | None:
    """The feature release of a Java: what its `release` file says, else what `java -version` does; None if there is no Java."""
    java = home / "bin/java"
    if not java.is_file():
        return None
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r'JAVA_VERSION="(\d+)', text)
    if found is None:
        answer = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60, check=False)
        found = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return max(8, int(found[1])) if found else None


def java_homes() -> list[Path]:
    """Where a Java may be: JAVA_HOME, the one on PATH, those in the system's folder."""
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("java")
    if on_path:
        homes.append(Path(on_path).resolve().parent.parent)
    installed = Path("/usr/lib/jvm")
    return homes + (sorted(installed.iterdir()) if installed.is_dir() else [])


def find_java() -> Path:
    """The home of the Java to use: that of JAVA_HOME or PATH if it fits, else a Java 17, else any that Spark runs on. Raises NoJava."""
    low, high = NEEDED_JAVA
    fitting: list[tuple[int, Path]] = []
    given = 2 if os.environ.get("JAVA_HOME") else 1
    for number, home in enumerate(java_homes()):
        version = java_version(home)
        if version is not None and low <= version <= high:
            if number < given or version == low:
                return home
            fitting.append((version, home))
    if not fitting:
        raise NoJava(f"no Java {low} to {high} was found", hint="Install one (Debian: openjdk-17-jre-headless) or set JAVA_HOME.")
    return min(fitting)[1]


def start_session(log_file: Path, *, master: str | None = None, defaults: dict[str, str] | None = None, **given: Any) -> SparkSession:
    """A new Spark session, for what reads or writes DataFrames; it knows Tidemill's formats. Arguments and errors are those of
    `start_context`."""
    from tidemill.spark.formats import register  # deliveries do without, and it takes a while to load

    preferred = {**settings.of_frames(master), **(defaults or {})}
    return register(SparkSession(start_context(log_file, master=master, defaults=preferred, **given)))


def start_context(
    log_file: Path,
    *,
    master: str | None = None,
    name: str = "tidemill",
    extra: dict[str, str] | None = None,
    defaults: dict[str, str] | None = None,
    user: Mapping[str, str] | None = None,
    host: str | None = None,
) -> SparkContext:
    """A new Spark context. What Java prints goes to `log_file`. For settings see `spark.settings.settings`; `extra` are those that this
    use needs. `host`: where a cluster's executors reach this process; by default the address from which this process reaches the
    master. On a cluster PYSPARK_PYTHON may say which Python the executors run. Raises NoJava, ConfigError, SparkUnavailable."""
    if SparkContext._active_spark_context is None:  # else the new session would keep the settings of the old one's Java
        SparkContext._gateway = SparkContext._jvm = None
    conf = SparkConf(loadDefaults=False).setMaster(master or f"local[{os.cpu_count() or 1}]").setAppName(name)
    here = host or host_for(master)
    places = {"spark.driver.host": here, "spark.driver.bindAddress": here}
    conf.setAll([*settings.settings(master, extra, user=user, preferred={**places, **(defaults or {})}).items()])
    if not settings.is_authenticated(master, user):
        log.warning("Spark at %s: %s", redact(master or "local"), settings.NOT_AUTHENTICATED)
    java = find_java()
    environment = {"JAVA_HOME": str(java), "PYSPARK_DRIVER_PYTHON": sys.executable, **SAFE_PATH, **with_archive(java, os.environ)}
    environment[LAUNCHER] = os.environ.get(LAUNCHER, LAUNCHER_OPTIONS)
    if is_in_process(master) or not os.environ.get("PYSPARK_PYTHON"):
        environment["PYSPARK_PYTHON"] = sys.executable
    environment["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", here)
    check_master_reachable(master)
    log_file.parent.mkdir(parents=True, exist_ok=True)
    interrupted = signal.getsignal(signal.SIGINT)
    said = log_file.stat().st_size if log_file.exists() else 0
    try:
        with open(log_file, "ab") as noise, _told_while_it_starts(master or "local"), _environment(environment):
            launch: Any = launch_gateway
            # A session of its own: a signal to the whole process group (Ctrl-C, a service manager's stop) is the driver's to handle.
            # Java ends by itself when the driver's end of its stdin closes.
            gateway = launch(conf, popen_kwargs={"stdout": noise, "stderr": noise, "start_new_session": True})
            context = SparkContext(gateway=gateway, conf=conf)
    except (Py4JError, PySparkException, OSError, ValueError) as error:
        cause = cause_of_start(str(error), log_file, said)
        raise SparkUnavailable(f"Spark at {master or 'local'} does not start: {cause}", hint=f"More is in {log_file}.") from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupted)  # PySpark's own cancels all jobs in the middle
    context.setLogLevel("WARN")
    return context


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables that Java and its Python workers inherit, without this process's secrets, and restore the caller's own
    afterwards."""
    before = {name: os.environ.get(name) for name in (*variables, *SECRETS)}
    for name in SECRETS:
        os.environ.pop(name, None)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _told_while_it_starts(master: str) -> Iterator[None]:
    """Warn now and then: Spark waits for minutes for a cluster that does not answer, and reports nothing."""
    over = threading.Event()

    def tell() -> None:
        waited = TOLD_AFTER_S
        while not over.wait(TOLD_AFTER_S if waited == TOLD_AFTER_S else TOLD_EVERY_S):
            log.warning("%s: Spark at %s has not started for %.0f s", SparkUnavailable.code, redact(master), waited)
            waited += TOLD_EVERY_S

    threading.Thread(target=tell, name="spark-start", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def stop_spark(spark: SparkSession | SparkContext) -> None:
    """Stop Spark, even if its Java is gone."""
    try:
        spark.stop()
    except (Py4JError, PySparkException, OSError) as error:
        log.debug("Spark did not stop as asked: %s", error)
