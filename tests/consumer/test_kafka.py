"""Brokers that are away or refuse for a moment, as a reader of topics sees them; against a mock broker."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Producer

from tests.support.servers.mock_kafka import METADATA, MockKafka
from tidemill.consumer import kafka, run
from tidemill.consumer.kafka import KafkaTopics
from tidemill.consumer.run import Patience
from tidemill.consumer.upstream import upstream
from tidemill.errors import TopicError, TopicUnavailable
from tidemill.sinks.kafka import denials

REFUSAL = KafkaError(KafkaError._AUTHENTICATION, "SASL authentication failed")


@pytest.fixture
def broker() -> Iterator[MockKafka]:
    with MockKafka() as made:
        made.create("t")
        yield made


@pytest.fixture
def topics(broker: MockKafka) -> Iterator[KafkaTopics]:
    made = KafkaTopics(upstream(f"kafka://{broker.address}/t?protocol=open-protocol", []))
    yield made
    made.close()


def test_a_broker_that_is_not_there_is_told_soon_and_why() -> None:
    made = KafkaTopics(upstream("kafka://127.0.0.1:1/t?protocol=open-protocol", []))
    with pytest.raises(TopicUnavailable, match=r"Kafka 127.0.0.1:1: listing topics: .*Connection refused") as caught:
        made.discover()
    assert caught.value.retryable
    made.close()


def test_one_question_that_is_not_answered_is_asked_again(broker: MockKafka, topics: KafkaTopics) -> None:
    assert topics.discover().partitions == [("t", 0)]
    broker.down()
    with pytest.raises(TopicUnavailable, match="listing topics"):
        topics.discover()
    broker.up()
    assert topics.discover().partitions == [("t", 0)]
    broker.refuse(METADATA, 7)  # REQUEST_TIMED_OUT
    assert topics.discover().partitions == [("t", 0)]
    assert topics.bounds(("t", 0)) == (0, 0)


def test_a_refusal_is_meant_at_the_start(topics: KafkaTopics) -> None:
    topics._on_error(REFUSAL)
    with pytest.raises(TopicError, match="refuses: SASL authentication failed") as caught:
        topics.poll(10, 0.0)
    assert not caught.value.retryable


def test_a_refusal_that_passes_is_not_the_end(broker: MockKafka, topics: KafkaTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    topics.discover()
    topics.follow({("t", 0): 0})
    topics._on_error(REFUSAL)
    assert topics.poll(10, 0.0) == []
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce("t", b"v", b"k")
    producer.flush(10)
    found = topics.poll(10, 0.2)
    while not found:
        found = topics.poll(10, 0.2)
    assert [record.key for record in found] == [b"k"]
    monkeypatch.setattr(denials, "LASTS_S", 0.0)
    for _ in range(denials.COUNTED):
        topics._on_error(REFUSAL)
    with pytest.raises(TopicError, match="refuses"):
        topics.poll(10, 0.0)


def test_patience_tells_at_first_and_once_a_minute(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    patience = Patience(600.0)
    waits = []
    while (wait := patience.wait_after(TopicUnavailable("no broker answers"))) is not None:
        waits.append(wait)
        now += wait
    assert waits[:5] == list(run.RETRY_S)
    assert set(waits[5:]) == {run.RETRY_S[-1]}
    assert 590 <= now - 1000 <= 600
    told = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert 9 <= len(told) <= 11
    assert "no broker answers; it is tried again, for 600 s in all" in caplog.text
    assert kafka.ASK_S < kafka.METADATA_TIMEOUT
