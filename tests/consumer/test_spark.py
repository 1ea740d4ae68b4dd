"""The consumer as a Structured Streaming query over Spark's Kafka source."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.consumer.consumers import make_topic, write
from tests.support.delivery.runs import PATIENCE_S
from tests.support.golden.topics import delivery, golden_differences, until_last_drop
from tests.support.servers.kafka import new_topic_name
from tests.support.spark.kafka_jars import spark_kafka_jars
from tests.support.spark.sessions import spark_session
from tidemill.consumer.spark import consume_stream
from tidemill.playground.programs.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

session = spark_session(extra=lambda: {"spark.jars": spark_kafka_jars()})


def test_a_stream_that_is_stopped_and_goes_on(kafka_broker: KafkaBroker, session: Any, tmp_path: Path) -> None:
    topic, file = new_topic_name("stream"), tmp_path / "tables.db"
    messages = until_last_drop()
    make_topic(kafka_broker, topic, 2)
    written = delivery(messages, 2, Random(9))
    uri, sink = f"kafka://{kafka_broker.address}/{topic}?protocol=open-protocol", f"sqlite://{file}"
    half = len(written) // 2
    for piece, until in ((written[:half], 1), (written[half:], messages[-1].ts)):
        write(kafka_broker, topic, piece)
        query, consumer = consume_stream(session, uri, sink, trigger="0 seconds", maxOffsetsPerTrigger="1400")
        try:
            query.processAllAvailable()
            assert consumer.consumer.ordering.flushed_ts >= until
        finally:
            query.stop()
            query.awaitTermination(int(PATIENCE_S))
            consumer.close()
        assert query.exception() is None
    assert golden_differences(file, messages) == []


def test_a_target_that_is_locked_for_a_while(
    kafka_broker: KafkaBroker, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The batch waits; what it and those before it had taken is read again where it has to be. There is a limit to a batch by default."""
    monkeypatch.setattr("tidemill.consumer.tables.sqlite._BUSY_S", 0.1)
    monkeypatch.setattr("tidemill.consumer.spark.MAX_OFFSETS", 700)
    topic, file = new_topic_name("locked"), tmp_path / "tables.db"
    messages = until_last_drop()
    make_topic(kafka_broker, topic, 2)
    write(kafka_broker, topic, delivery(messages, 2, Random(4)))
    query, consumer = consume_stream(
        session, f"kafka://{kafka_broker.address}/{topic}?protocol=open-protocol", f"sqlite://{file}", trigger="0 seconds"
    )
    try:
        counters = consumer.consumer.counters
        while not counters.commits and query.isActive:  # the lock comes between two batches
            query.awaitTermination(1)
        holder = sqlite3.connect(file, timeout=30)
        holder.execute("BEGIN IMMEDIATE")
        while counters.restarts < 2 and query.isActive and consumer.consumer.ordering.flushed_ts < messages[-1].ts:
            query.awaitTermination(1)
        holder.rollback()
        holder.close()
        query.processAllAvailable()
    finally:
        query.stop()
        query.awaitTermination(int(PATIENCE_S))
        consumer.close()
    assert query.exception() is None
    assert len(query.recentProgress) > 2
    assert counters.restarts >= 2
    assert "locked; it is tried again" in caplog.text
    assert golden_differences(file, messages) == []
