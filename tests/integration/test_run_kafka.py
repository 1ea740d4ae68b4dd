"""The main job into a real Kafka: what was delivered makes the upstream's tables, also when the broker goes away.

Whatever the broker does, the capture goes on.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.runs import assert_equal, audited, await_that, settled, tidemill
from tests.support.faults.outages import PARTITIONS, QUICK, TOPIC, UPSTREAM, broker_away, hasty, in_warning, sink_of
from tests.support.servers.kafka import new_topic_name
from tidemill.demo.delivered import from_kafka
from tidemill.demo.session import Delivery, Upstream
from tidemill.playground.programs.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1800)]

__all__ = ["hasty"]

SHORT_S = 5.0


@pytest.mark.thorough("test_long_outage.py has one outage; tests/changefeed/test_restart_rule.py what fails, is resumed, and fails at once")
@pytest.mark.usefixtures("hasty")
def test_into_a_broker_that_goes_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For too long: the changefeed fails, is resumed, and waits for the broker. For a moment, which the same process outlives."""
    impatient = (*QUICK, "--sink-retry", "3s", "--changefeed-error-stuck-duration", "3s")
    with KafkaBroker() as broker, Upstream(tmp_path, seed=11, rate=12, options=UPSTREAM) as upstream:
        with Delivery(tmp_path, upstream, sink_of(broker), options=impatient, start_ts=upstream.began_ts) as run:
            await_that(lambda: run.feed_status().get("rows", 0) > 50, "rows are delivered", run)
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
        assert (
            "[ERROR] [run] [tidemill.changefeed.restart_rule] changefeed demo failed and is not tried again: TM:ErrSinkUnavailable: "
            in said
        )
        assert "Error TM:" not in (tmp_path / "run.log").read_text()

        with Delivery(tmp_path, upstream, sink_of(broker), options=QUICK) as again:
            await_that(lambda: in_warning(again, broker), "a run that is started meanwhile waits as well", again)
            broker.start()
            await_that(lambda: again.checkpoint() > delivered, "it goes on once the broker is there", again)
            await_that(lambda: again.feed_status()["state"] == "normal", "it says so", again)

            process = again.feed_status()["pid"]
            with broker_away(broker, again):
                delivered = again.checkpoint()
                threading.Event().wait(SHORT_S)  # the outage itself
            await_that(lambda: again.checkpoint() > delivered, "it goes on after the outage", again)
            await_that(lambda: again.feed_status()["state"] == "normal", "it says so", again)
            assert again.feed_status()["pid"] == process
            end_ts, truth = settled(upstream, again)
            assert again.stop() == 0
        assert_equal(audited(from_kafka(broker.address, TOPIC)), again.log, truth, end_ts)
        assert {m.partition for m in from_kafka(broker.address, TOPIC)} == set(range(PARTITIONS))


def test_what_kafka_refuses_is_said_at_once(kafka_broker: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY)")
    sql.run("INSERT INTO t VALUES (1), (2), (3)")
    log = sql.write(tmp_path / "log")
    topic = new_topic_name("two")
    many, absent, two = (f"kafka://{kafka_broker.address}/{name}?protocol=open-protocol" for name in (new_topic_name(), "absent", topic))
    assert tidemill(capsys, "replay", "--log", log, "--sink-uri", f"{two}&partition-num=2")[0] == 0
    for uri, code, says in (
        (f"{many}&replication-factor=3", "TM:ErrSink", "replication factor 3"),
        (f"{absent}&auto-create-topic=false", "TM:ErrSink", "absent"),
        (f"{two}&partition-num=5", "TM:ErrConfig", f"topic {topic} has 2 partitions"),
    ):
        status, out, err = tidemill(capsys, "replay", "--log", log, "--sink-uri", uri)
        assert (status, out, err.startswith(f"Error {code}: "), says in err) == (1, "", True, True), err
