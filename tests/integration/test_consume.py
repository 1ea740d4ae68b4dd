"""The main job and its other half: upstream, `tidemill run` into Kafka, `tidemill consume` into tables, each killed in between."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.consumer.consumers import Process, flushed_ts, select, write
from tests.support.delivery.runs import PATIENCE_S, Truth, await_that, settled, tidemill
from tests.support.servers.mariadb import MariaDb
from tidemill.consumer.tables.sqlite import SqliteTables
from tidemill.demo.compare import compare
from tidemill.demo.delivered import from_kafka
from tidemill.demo.session import Delivery, Upstream
from tidemill.playground.programs.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

TOPIC = "changes"


def differences(file: Path, truth: Truth) -> list[str]:
    tables = SqliteTables(file)
    try:
        return [str(d) for d in compare(tables, truth)][:10]
    finally:
        tables.close()


def test_writer_and_consumer_are_killed_and_the_tables_equal_the_upstream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--stores", "2", "--resolved-interval", "0.3", "--ddl-every", "40")
    file = tmp_path / "tables.db"
    with KafkaBroker() as broker, Upstream(tmp_path, seed=23, rate=30, options=options) as upstream:
        sink = f"kafka://{broker.address}/{TOPIC}?protocol=open-protocol&partition-num=3"
        flags = ("--kafka", broker.address, "--topic", TOPIC, "--sink-uri", f"sqlite://{file}", "--tz", "UTC")
        with (
            Delivery(tmp_path, upstream, sink, options=("--trigger-ms", "50"), start_ts=upstream.began_ts) as delivery,
            Process(tmp_path, *flags, "--flush-interval", "50ms") as first,
        ):
            first.wait_for(lambda: flushed_ts(file) > 0, "the consumer writes")
            await_that(lambda: delivery.feed_status().get("rows", 0) > 100, "rows are delivered", delivery)
            delivery.kill()
            first.process.send_signal(signal.SIGKILL)
        # A new writer sends from its checkpoint on; what was sent behind it before the kill comes twice.
        with (
            Delivery(tmp_path, upstream, sink, options=("--trigger-ms", "50")) as delivery,
            Process(tmp_path, *flags, "--memory-quota", "64K") as second,
        ):
            end_ts, truth = settled(upstream, delivery)
            second.wait_for(lambda: flushed_ts(file) >= end_ts, "the consumer has all of it")
            second.process.send_signal(signal.SIGTERM)
            assert second.process.wait(PATIENCE_S) == 0, second.said
            assert delivery.stop() == 0
        # The whole topic once more, behind itself: a replay from the very start.
        everything = [m for m in from_kafka(broker.address, TOPIC) if m.value is not None]
        assert differences(file, truth) == []
        assert len(select(file, "SELECT ts FROM _tidemill_ddls")) > 5
        write(broker, TOPIC, [(m.partition, m.key or b"", m.value or b"") for m in everything])
        code, out, err = tidemill(capsys, "consume", *flags, "--stop-at-end")
        assert code == 0, out + err
        assert differences(file, truth) == []
        # The topic into a database, by a consumer that is killed, and everything compared by `tidemill diff`.
        with MariaDb() as db:
            into = ("--kafka", broker.address, "--topic", TOPIC, "--sink-uri", db.uri, "--tz", "UTC", "--stop-at-end")
            with Process(tmp_path, *into) as fourth:
                fourth.wait_for(lambda: bool(db.rows("SHOW DATABASES LIKE 'shop'")), "the consumer writes")
                fourth.process.send_signal(signal.SIGKILL)
            code, out, err = tidemill(capsys, "consume", *into)
            assert code == 0, out + err
            for downstream in (db.uri, f"sqlite://{file}", sink):
                arguments = ("--pd", upstream.pd, "--ts", end_ts, "--sink-uri", downstream, "--tz", "UTC")
                code, out, err = tidemill(capsys, "diff", *arguments)
                assert code == 0, out + err
