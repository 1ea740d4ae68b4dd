"""The main job into a real Kafka: what was delivered makes the upstream's tables, also when the broker goes away.

Three runs of one changefeed: one whose broker is gone for ten seconds, one whose broker stays away, one that goes on after that.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.logs import golden_log
from tests.support.runs import PATIENCE_S, assert_equal, audited, await_that, settled, tidemill
from tidemill.demo.delivered import from_kafka
from tidemill.demo.session import Delivery, Upstream
from tidemill.playground.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

TOPIC = "changes"
PARTITIONS = 3
OUTAGE_S = 10.0


def test_into_a_broker_that_goes_away(tmp_path: Path) -> None:
    options = ("--stores", "2", "--resolved-interval", "0.3", "--ddl-every", "60", "--region-every", "80")
    with KafkaBroker() as broker, Upstream(tmp_path, seed=11, rate=25, options=options) as upstream:
        sink = f"kafka://{broker.address}/{TOPIC}?protocol=open-protocol&partition-num={PARTITIONS}"
        with Delivery(tmp_path, upstream, sink, options=("--trigger-ms", "50"), start_ts=upstream.began_ts) as first:
            await_that(lambda: first.feed_status().get("rows", 0) > 50, "rows are delivered", first)
            broker.stop(kill=True)
            delivered = first.checkpoint()
            time.sleep(OUTAGE_S)  # the outage itself
            first.check()
            broker.start()
            await_that(lambda: first.checkpoint() > delivered, "it goes on after the outage", first)
            settled(upstream, first)
            assert first.stop() == 0
        rows = first.feed_status()["rows"]
        assert rows > 50

        with Delivery(tmp_path, upstream, sink, options=("--trigger-ms", "50", "--sink-retry", "0s")) as second:
            at = second.checkpoint()
            await_that(lambda: second.checkpoint() > at, "it runs", second)
            broker.stop(kill=True)
            upstream.call("resume")
            assert second.process is not None
            assert second.process.wait(PATIENCE_S) == 1
        said = (tmp_path / "run.log").read_text()
        assert said.count("Error TM:") == 1, said
        assert "Error TM:ErrSinkUnavailable: changefeed: batch " in said
        assert broker.address in said
        assert second.feed_status()["state"] == "failed"
        assert second.status()["error"]["code"] == "TM:ErrSinkUnavailable"

        with Delivery(tmp_path, upstream, sink, options=("--trigger-ms", "50")) as third:
            await_that(lambda: third.feed_status().get("state") == "warning", "it waits for the broker, which was there before", third)
            broker.start()
            end_ts, truth = settled(upstream, third)
            assert third.stop() == 0
        assert_equal(audited(from_kafka(broker.address, TOPIC)), third.log, truth, end_ts)
        assert {m.partition for m in from_kafka(broker.address, TOPIC)} == set(range(PARTITIONS))


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
