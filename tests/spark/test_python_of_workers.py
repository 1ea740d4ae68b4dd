"""Which Python Spark's workers run, where `python3` of PATH is not the one that has Tidemill."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SHOWN = "import tidemill.spark, os; print(os.environ.get('PYSPARK_PYTHON', ''))"


def shown(**more: str) -> str:
    environment = {name: text for name, text in os.environ.items() if name not in ("PYSPARK_PYTHON", "VIRTUAL_ENV")}
    done = subprocess.run(
        [sys.executable, "-c", SHOWN], env={**environment, "PATH": "/usr/bin:/bin", **more}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="this Python is in no virtual environment")
def test_workers_run_the_python_of_a_virtual_environment_that_is_not_active() -> None:
    assert shown() == sys.executable


def test_who_has_named_one_keeps_it() -> None:
    assert shown(PYSPARK_PYTHON="/opt/other/bin/python") == "/opt/other/bin/python"
