"""A Spark session for the tests of a module: `session = spark_session()` there makes the fixture.

One Spark serves all modules that one process of the tests runs: its Java takes seconds to start, and its first query too. Each module has
a session of its own there, with its own settings, tables and formats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"}
"""A test ends before full optimisation pays."""
ELSEWHERE = ("chaos", "docs", "integration")
"""Rooms whose tests start Spark in other processes alone."""
ROOT = Path(__file__).parents[3]

_running: list[tuple[Mapping[str, str], Any]] = []
"""The Spark that runs, if one does, and the settings that it was started with."""
_fixtures: list[Any] = []


def spark_session(extra: Callable[[], Mapping[str, str]] = dict, **settings: str) -> Any:
    """The fixture. Its Python workers find the tests' own modules. `extra`: what Spark is started with, asked for then. `settings`: of SQL,
    `__` for a dot."""

    @pytest.fixture(scope="module")
    def session(tmp_path_factory: pytest.TempPathFactory) -> Any:
        found = _started(tmp_path_factory, dict(extra())).newSession()
        for name, value in settings.items():
            found.conf.set(name.replace("__", "."), value)
        return found

    _fixtures.append(session)
    return session


def as_started() -> Any:
    """The session that came with the Spark that runs; modules have others."""
    return _running[0][1]


def patiently(work: Callable[[], Any]) -> Any:
    """Run a query, and again where its Python process was late to start: Spark waits ten seconds for that."""
    from pyspark.errors import StreamingQueryException  # most runs of the tests need no Spark

    for _ in range(6):
        try:
            return work()
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
    raise AssertionError("Spark's Python process is late each time")


def shares(module: object) -> bool:
    """Whether the Spark of all may go on while a module's tests run: they use it, or theirs runs in other processes, as the room or
    `SPARK_IS_ELSEWHERE` in the module says. It takes ten CPU seconds to start it again."""
    if getattr(module, "SPARK_IS_ELSEWHERE", False) or any(getattr(module, "session", None) is one for one in _fixtures):
        return True
    return Path(getattr(module, "__file__", "")).parent.name in ELSEWHERE


def end_session() -> None:
    """End the Spark that runs: a process has room for one."""
    while _running:
        from tidemill.spark.session import stop_spark

        stop_spark(_running.pop()[1])


def _started(folders: pytest.TempPathFactory, extra: Mapping[str, str]) -> Any:
    if not _running or _running[0][0] != extra:
        from tidemill.spark.session import start_session  # most runs of the tests need no Spark

        end_session()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(ROOT))
            log = folders.mktemp("spark") / "spark.log"
            spark = start_session(log, master="local[2]", extra=dict(extra), defaults=QUICK)
        _running.append((extra, spark))
    return _running[0][1]
