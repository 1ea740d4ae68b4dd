"""Small batches while Spark is starting."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tidemill.delivery.machine.failures import Stopped
from tidemill.errors import SparkUnavailable
from tidemill.spark import local
from tidemill.spark.background import BackgroundSpark


def test_a_batch_that_needs_spark_ends_the_delivery_if_spark_does_not_start() -> None:
    """It would not start for the next attempt either; `check` tells why."""

    def refused() -> Any:
        raise SparkUnavailable("no Spark master answers")

    spark = BackgroundSpark(refused)
    spark.start()
    runner = local.EarlyRunner(spark, lambda context: pytest.fail("no runner can be made"), threading.Event())
    with pytest.raises(Stopped, match="Spark did not start"):
        runner.run([])
    with pytest.raises(Stopped):
        _ = runner.parallelism
    with pytest.raises(SparkUnavailable, match="no Spark master answers"):
        spark.check()


def test_a_stop_ends_the_wait_for_spark() -> None:
    stop, go = threading.Event(), threading.Event()

    def slow() -> Any:
        go.wait()
        return SimpleNamespace(version="4", master="local")

    spark = BackgroundSpark(slow)
    spark.start()
    stop.set()
    with pytest.raises(Stopped, match="while Spark was starting"):
        _ = local.EarlyRunner(spark, lambda context: pytest.fail("no runner can be made"), stop).parallelism
    go.set()
