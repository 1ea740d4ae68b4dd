"""Which Spark settings a session gets. The user's settings win over Tidemill's, except those that delivery needs.

The user's settings are those of spark-defaults.conf (SPARK_CONF_DIR, or the conf folder of the Spark in use) and of `--spark-conf`. Spark
itself reads the file: what is handed over here shows on Java's command line.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from tidemill.errors import ConfigError
from tidemill.process.places import is_in_process

DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # Rows never enter Java, neither the driver's nor an executor's. It does little, so compiling its code with full optimisation costs more
    # than it saves: an executor takes 12 CPU s to start, without it 6.
    # Counters for jstat would wake a thread twenty times a second.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
    "spark.locality.wait": "0s",
    # A cancelled task's worker dies after 0.65 s instead of 2.7 s.
    "spark.python.task.killTimeout": "0s",
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # An executor's Python takes no module from the folder that it runs in, see `process.children`.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    # NumPy's OpenBLAS, which nothing here uses, would start a thread a CPU in each worker.
    "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
}
"""Settings that the user may change."""

FRAMES = {
    # Rows of DataFrames do enter Java: its code is compiled with full optimisation.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:-UsePerfData",
    "spark.executor.extraJavaOptions": "-XX:-UsePerfData",
}
"""Such settings of a session that reads or writes DataFrames."""
LOCAL_FRAMES = {"spark.python.unix.domain.socket.enabled": "true"}
"""And of one whose tasks run in the driver's Java: Arrow batches cost less there than through TCP. The path of such a socket has about 100
bytes at most, and a container of an executor may have a longer folder for it."""
LONGEST_FOLDER = 50

AUTHENTICATED = "spark.authenticate"
"""Without it the ports of the driver and of executors take Java objects, and blocks, from whoever connects: a local master's too."""
NOT_AUTHENTICATED = (
    "spark.authenticate is off: whoever reaches the ports of driver and executors can run code there. Set spark.authenticate=true and "
    "spark.network.crypto.enabled=true; a standalone cluster also needs spark.authenticate.secret, the same for its master and workers"
)
ENCRYPTED = "spark.network.crypto.enabled"
SECRETS_MADE_BY_SPARK = ("k8s", "yarn")
"""Cluster managers for which Spark makes a secret for each application and hands it to its executors."""

NEEDED = {
    "spark.task.maxFailures": "1",
    "spark.speculation": "false",
    "spark.python.daemon.module": "tidemill.spark.worker_daemon",
    "spark.submit.deployMode": "client",
}
"""Settings that nobody may change."""

_WHY = {
    "spark.task.maxFailures": "a task that Spark runs again by itself would deliver beside the attempt before it; Tidemill runs the whole "
    "batch again, under a new epoch",
    "spark.speculation": "two copies of a task would deliver the same rows at the same time",
    "spark.python.daemon.module": "Tidemill's own loads the kernels once for all Python workers of an executor",
    "spark.submit.deployMode": "the driver is the process that `tidemill` started",
}

PYTHON_MIB = 512
"""Memory of a task's Python process: a chunk of rows in all its forms, the queue of the sink's client, the libraries."""
JAVA_OVERHEAD_MIB = 384  # Spark's own least
_MEMORY = ("spark.executor.memoryOverhead", "spark.executor.memoryOverheadFactor", "spark.executor.pyspark.memory")

_LINE = re.compile(r"((?:\\.|[^\\\s=:])+)\s*[=:\s]?\s*(.*)", re.DOTALL)


def parsed(text: str) -> dict[str, str]:
    """The settings of a Java properties file such as spark-defaults.conf: `name value` or `name=value`; `#` and `!` begin a comment."""
    found = {}
    for line in re.sub(r"\\\n[ \t]*", "", text).splitlines():
        line = line.strip()
        match = _LINE.fullmatch(line) if line and line[0] not in "#!" else None
        if match:
            found[re.sub(r"\\(.)", r"\1", match[1])] = re.sub(r"\\(.)", r"\1", match[2]).strip()
    return found


def defaults_file() -> Path:
    """Where spark-defaults.conf is, if there is one."""
    from pyspark.find_spark_home import _find_spark_home  # the command line need not load it

    folder = os.environ.get("SPARK_CONF_DIR") or f"{os.environ.get('SPARK_HOME') or _find_spark_home()}/conf"
    return Path(folder) / "spark-defaults.conf"


def options(given: Iterable[str]) -> dict[str, str]:
    """The settings of `--spark-conf NAME=VALUE` options. Raises ConfigError."""
    found = {}
    for one in given:
        name, mark, value = one.partition("=")
        if not mark or not name.strip().startswith("spark."):
            raise ConfigError(f"--spark-conf {name}: expected spark.NAME=VALUE", hint="As in --spark-conf spark.executor.cores=2")
        found[name.strip()] = value.strip()
    return found


def of_frames(master: str | None) -> dict[str, str]:
    """Settings of a session for DataFrames, which the user may change."""
    return {**FRAMES, **(LOCAL_FRAMES if is_in_process(master) and len(tempfile.gettempdir()) < LONGEST_FOLDER else {})}


def settings(
    master: str | None,
    ours: Mapping[str, str] | None = None,
    *,
    user: Mapping[str, str] | None = None,
    preferred: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> dict[str, str]:
    """The settings that a session is started with, besides those of spark-defaults.conf.

    `ours`: what this kind of session needs; nothing overrides it. `preferred`: overrides DEFAULTS, and is overridden by the user. `user`:
    from `options`. Raises ConfigError for a setting of the user that NEEDED forbids.
    """
    path = file or defaults_file()
    of_file = parsed(path.read_text(encoding="utf-8")) if path.is_file() else {}
    of_user = dict(user or {})
    needed = {name: value for name, value in NEEDED.items() if name not in (ours or {})}
    for name, value in needed.items():
        place = "--spark-conf" if name in of_user else str(path)
        found = of_user.get(name, of_file.get(name, value))
        if found != value:
            raise ConfigError(f"{name} = {found} of {place} cannot be: {_WHY[name]}", hint=f"Leave it out, or set it to {value}.")
    own = {**DEFAULTS, **of_network(master), **_memory(master, {**of_file, **of_user}), **(preferred or {})}
    kept = {name: value for name, value in own.items() if name not in of_file}
    return {**kept, **of_user, **needed, **(ours or {})}


def of_network(master: str | None) -> dict[str, str]:
    """Settings of the ports of driver and executors, which the user may change. A standalone master and its workers have to be given one
    secret (spark.authenticate.secret), so there it is the user's to set."""
    if is_in_process(master):
        return {AUTHENTICATED: "true"}
    if (master or "").partition(":")[0] in SECRETS_MADE_BY_SPARK:
        return {AUTHENTICATED: "true", ENCRYPTED: "true"}
    return {}


def is_authenticated(master: str | None, user: Mapping[str, str] | None = None, file: Path | None = None) -> bool:
    """Return whether the ports of a session with these settings ask who connects. Raises ConfigError."""
    path = file or defaults_file()
    of_file = parsed(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {**of_file, **settings(master, user=user, file=file)}.get(AUTHENTICATED, "false").lower() == "true"


def _memory(master: str | None, user: Mapping[str, str]) -> dict[str, str]:
    """Python's memory is not part of Java's: where executors are containers, their limit needs room for both."""
    if is_in_process(master) or any(name in user for name in _MEMORY):
        return {}
    cores = user.get("spark.executor.cores", "1")
    tasks = int(cores) if cores.isdecimal() else 1
    return {"spark.executor.memoryOverhead": f"{JAVA_OVERHEAD_MIB + PYTHON_MIB * tasks}m"}
