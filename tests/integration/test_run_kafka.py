"""The main job into a real Kafka: what was delivered makes the upstream's tables, also when the broker goes away.

Whatever the broker does, the capture goes on. `make outage` keeps the broker away for ten minutes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.logs import golden_log
from tests.support.runs import assert_equal, audited, await_that, settled, tidemill
from tidemill.demo.delivered import from_kafka
from tidemill.demo.session import Delivery, Upstream
from tidemill.playground.programs.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1800)]

TOPIC = "changes"
PARTITIONS = 3
SHORT_S = 5.0
LONG_S = float(os.environ.get("OUTAGE_S", "75"))
"""Longer than Kafka's client waits for a broker."""
UPSTREAM = ("--stores", "2", "--resolved-interval", "0.3", "--ddl-every", "60", "--region-every", "80")
QUICK = ("--trigger-ms", "50")


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


def test_into_a_broker_that_goes_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For a moment, which the same process outlives; for too long: the changefeed fails, is resumed, and waits for the broker."""
    options = (*QUICK, "--sink-retry", "45s", "--changefeed-error-stuck-duration", "45s")
    with KafkaBroker() as broker, Upstream(tmp_path, seed=11, rate=12, options=UPSTREAM) as upstream:
        with Delivery(tmp_path, upstream, sink_of(broker), options=options, start_ts=upstream.began_ts) as run:
            await_that(lambda: run.feed_status().get("rows", 0) > 50, "rows are delivered", run)
            process = run.feed_status()["pid"]
            with broker_away(broker, run):
                delivered = run.checkpoint()
                threading.Event().wait(SHORT_S)  # the outage itself
            await_that(lambda: run.checkpoint() > delivered, "it goes on after the outage", run)
            await_that(lambda: run.feed_status()["state"] == "normal", "it says so", run)
            assert run.feed_status()["pid"] == process

            with broker_away(broker, run, comes_back=False):
                await_that(lambda: run.status().get("state") == "failed", "it is given up", run)
                delivered, status = run.checkpoint(), run.status()
                assert (status["error"]["code"], broker.address in status["error"]["message"]) == ("TM:ErrSinkUnavailable", True)
            told = tidemill(capsys, "status", "--data-dir", run.data)[1]
            assert "it is not tried again by itself, the capture goes on" in told
            assert f"tidemill changefeed resume --data-dir {run.data} --changefeed-id demo" in told
            code, _, err = tidemill(capsys, "changefeed", "resume", "--data-dir", run.data)
            assert code == 0, err
            await_that(lambda: in_warning(run, broker), "it waits for the broker, which was there before", run)
            assert run.checkpoint() == delivered
            assert run.stop() == 0
        said = (tmp_path / "tidemill.log").read_text()
        assert "[ERROR] [run] [tidemill.changefeed.keeper] changefeed demo failed and is not tried again: TM:ErrSinkUnavailable: " in said
        assert "Error TM:" not in (tmp_path / "run.log").read_text()

        with Delivery(tmp_path, upstream, sink_of(broker), options=QUICK) as again:
            await_that(lambda: in_warning(again, broker), "a run that is started meanwhile waits as well", again)
            broker.start()
            end_ts, truth = settled(upstream, again)
            assert again.stop() == 0
        assert_equal(audited(from_kafka(broker.address, TOPIC)), again.log, truth, end_ts)
        assert {m.partition for m in from_kafka(broker.address, TOPIC)} == set(range(PARTITIONS))


def test_a_long_outage_needs_nobody(tmp_path: Path) -> None:
    """With the settings that a run has by itself: the state is warning until the broker is back, then everything comes."""
    with KafkaBroker() as broker, Upstream(tmp_path, seed=12, rate=10, options=UPSTREAM) as upstream:
        with Delivery(tmp_path, upstream, sink_of(broker), options=QUICK, start_ts=upstream.began_ts) as run:
            await_that(lambda: run.feed_status().get("rows", 0) > 50, "rows are delivered", run)
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


def test_what_kafka_refuses_is_said_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = golden_log(tmp_path / "log")
    with KafkaBroker(settings={"sasl.enabled.mechanisms": "PLAIN"}) as broker:
        base = f"kafka://{broker.address}"
        assert tidemill(capsys, "replay", "--log", log, "--sink-uri", f"{base}/two?protocol=open-protocol&partition-num=2")[0] == 0
        for uri, code, says in (
            (f"{base}/many?protocol=open-protocol&replication-factor=3", "TM:ErrSink", "replication factor 3"),
            (f"{base}/absent?protocol=open-protocol&auto-create-topic=false", "TM:ErrSink", "absent"),
            (f"{base}/two?protocol=open-protocol&partition-num=5", "TM:ErrConfig", "topic two has 2 partitions"),
        ):
            status, out, err = tidemill(capsys, "replay", "--log", log, "--sink-uri", uri)
            assert (status, out, err.startswith(f"Error {code}: "), says in err) == (1, "", True, True), err
