"""A Kafka broker that goes away under a run, and what the run says of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.delivery.runs import await_that
from tidemill.demo.session import Delivery
from tidemill.playground.programs.kafka_broker import KafkaBroker

TOPIC = "changes"
PARTITIONS = 3
UPSTREAM = ("--stores", "2", "--resolved-interval", "0.3", "--ddl-every", "60", "--region-every", "80")
QUICK = ("--trigger-ms", "50")

HASTY_S = 5.0
"""How long a hasty run waits for a broker that does not answer; the default is a minute."""


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that this test starts wait for Kafka for a shorter time."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).with_name("hasty")))


@pytest.fixture
def hasty_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that this test starts notice sooner that storage is away."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).with_name("hasty_storage")))


@pytest.fixture
def hasty_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captures that this test starts replace a silent group sooner."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).with_name("hasty_groups")))


def sink_of(broker: KafkaBroker) -> str:
    return f"kafka://{broker.address}/{TOPIC}?protocol=open-protocol&partition-num={PARTITIONS}"


@contextmanager
def broker_away(broker: KafkaBroker, delivery: Delivery, *, comes_back: bool = True) -> Iterator[None]:
    """The broker is killed, and started again at the end; the capture gets on in between, and is the same process."""
    broker.stop(kill=True)
    pid = capture_pid(delivery)
    yield
    moves(delivery)
    moves(delivery)
    assert capture_pid(delivery) == pid
    if comes_back:
        broker.start()


def resolved(delivery: Delivery) -> int:
    return int(delivery.capture_status()["resolved_ts"])


def moves(delivery: Delivery) -> None:
    """Wait until the capture has got further than it is."""
    before = resolved(delivery)
    await_that(lambda: resolved(delivery) > before, "the capture goes on", delivery)


def capture_pid(delivery: Delivery) -> int:
    (pid,) = [process["pid"] for process in delivery.status()["processes"] if process["name"] == "capture"]
    return int(pid)


def in_warning(delivery: Delivery, broker: KafkaBroker) -> bool:
    """The status says so, with the broker's error."""
    status = delivery.status()
    if status.get("state") != "warning":
        return False
    assert status["error"]["code"] == "TM:ErrSinkUnavailable"
    assert broker.address in status["error"]["message"]
    return True
