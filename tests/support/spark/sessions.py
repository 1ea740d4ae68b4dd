"""A Spark session for the tests of a module: `session = spark_session(master="local[2]")` there makes the fixture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tidemill.spark.session import start_session

QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"}
"""A test ends before full optimisation pays."""
ROOT = Path(__file__).parents[3]


def spark_session(master: str = "local[1]", extra: Callable[[], Mapping[str, str]] = dict) -> Any:
    """The fixture. Its Python workers find the tests' own modules. `extra`: settings, asked for when the session starts."""

    @pytest.fixture(scope="module")
    def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(ROOT))
            log = tmp_path_factory.mktemp("spark") / "spark.log"
            spark = start_session(log, master=master, extra=dict(extra()), defaults=QUICK)
            yield spark
            spark.stop()

    return session
