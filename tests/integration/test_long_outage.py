"""A Kafka that is away for longer than its client waits: nobody has to do anything.

Whatever the broker does, the capture goes on. `make outage` keeps the broker away for ten minutes.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.support.delivery.runs import assert_equal, audited, await_that, settled
from tests.support.faults.outages import HASTY_S, QUICK, TOPIC, UPSTREAM, broker_away, hasty, in_warning, sink_of
from tidemill.demo.delivered import from_kafka
from tidemill.demo.session import Delivery, Upstream
from tidemill.playground.programs.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1800)]

__all__ = ["hasty"]

OUTAGE = os.environ.get("OUTAGE_S")
LONG_S = float(OUTAGE or HASTY_S + 2)
"""Longer than Kafka's client waits for a broker."""


def test_a_long_outage_needs_nobody(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The state is warning until the broker is back, then everything comes. A real outage is met with the default settings."""
    if OUTAGE is None:
        request.getfixturevalue("hasty")
    with KafkaBroker() as broker, Upstream(tmp_path, seed=12, rate=10, options=UPSTREAM) as upstream:
        with Delivery(tmp_path, upstream, sink_of(broker), options=QUICK, start_ts=upstream.began_ts) as run:
            await_that(lambda: run.feed_status().get("rows", 0) > 20, "rows are delivered", run)
            with broker_away(broker, run):
                delivered = run.checkpoint()
                over = threading.Event()
                timer = threading.Timer(LONG_S, over.set)
                timer.start()
                await_that(lambda: in_warning(run, broker), "its state is warning", run)
                while not over.wait(1.0):
                    assert in_warning(run, broker)
                    run.check()
            await_that(lambda: run.checkpoint() > delivered, "it goes on by itself", run)
            end_ts, truth = settled(upstream, run)
            await_that(lambda: run.status()["state"] == "normal", "its state is normal again", run)
            assert run.stop() == 0
        assert_equal(audited(from_kafka(broker.address, TOPIC)), run.log, truth, end_ts)
