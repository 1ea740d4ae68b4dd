"""What the Kafka sink does when a broker refuses a message, stops answering, or refuses the client for a moment. Against a mock broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError

from tests.support.delivery.messages import context, messages_of
from tests.support.servers.mock_kafka import PRODUCE, MockKafka
from tidemill.config.uri import parse_sink_uri
from tidemill.errors import SinkError, SinkUnavailable
from tidemill.sinks.kafka import denials, faults, options
from tidemill.sinks.kafka.denials import Denials
from tidemill.sinks.kafka.driver import KafkaDriverSink
from tidemill.sinks.kafka.native import NativeProducer
from tidemill.sinks.kafka.task import KafkaTaskSink

TOPIC = "t"
KEYS = [b"%d" % i for i in range(12)]
LARGE = b"v" * 300_000  # a few fill a batch of the client
REFUSED = 29  # TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def broker() -> Iterator[MockKafka]:
    with MockKafka() as made:
        made.create(TOPIC)
        yield made


@pytest.fixture
def sink(broker: MockKafka) -> Iterator[KafkaTaskSink]:
    made = KafkaTaskSink(parse_sink_uri(f"kafka://{broker.address}/{TOPIC}?protocol=open-protocol"))
    yield made
    made.abandon()


@pytest.fixture
def driver(broker: MockKafka) -> Iterator[KafkaDriverSink]:
    made = KafkaDriverSink(parse_sink_uri(f"kafka://{broker.address}/{TOPIC}?protocol=open-protocol"))
    yield made
    made.close()


def deliver(sink: KafkaTaskSink, keys: list[bytes], epoch: int) -> int:
    sink.begin(context(epoch=epoch))
    sink.deliver(messages_of([(0, key, LARGE) for key in keys]), [(TOPIC, 0)])
    return sink.flush()


@pytest.mark.parametrize(("code", "name"), [(REFUSED, "TOPIC_AUTHORIZATION_FAILED"), (87, "INVALID_RECORD"), (10, "MSG_SIZE_TOO_LARGE")])
def test_nothing_goes_out_behind_a_refused_message(broker: MockKafka, sink: KafkaTaskSink, code: int, name: str) -> None:
    """Not even before the refusal is noticed; the next attempt begins with that message and a producer of its own."""
    assert deliver(sink, KEYS[:2], 1) == 2
    broker.refuse(PRODUCE, code)
    sink.begin(context(epoch=2))
    sink.deliver(messages_of([(0, KEYS[2], LARGE)]), [(TOPIC, 0)])
    producer = sink._producer
    assert producer is not None
    while not producer.failed:
        producer.poll(100)
    array, count = sink._messages, 1  # the same message once more, as if nobody had looked
    assert producer.produce(TOPIC, array.ctypes.data, count) == 0
    with pytest.raises(SinkError, match=f"{TOPIC}/0: {name}") as caught:
        sink.flush()
    assert not caught.value.retryable
    sink.abandon()
    assert broker.keys(TOPIC) == KEYS[:2]
    assert deliver(sink, KEYS[2:], 3) == 10
    assert broker.keys(TOPIC) == KEYS


def test_nothing_goes_out_behind_a_refused_ddl(broker: MockKafka, driver: KafkaDriverSink) -> None:
    broker.refuse(PRODUCE, REFUSED)
    driver.send(TOPIC, KEYS[0], None, [0])
    with pytest.raises(SinkError, match="TOPIC_AUTHORIZATION_FAILED"):
        driver.send(TOPIC, KEYS[1], None, [0])
    driver.discard(context())
    assert broker.keys(TOPIC) == []
    for key in KEYS:
        driver.send(TOPIC, key, None, [0])
    driver.finish_batch(context())
    assert broker.keys(TOPIC) == KEYS


def test_what_is_not_acknowledged_is_given_up_at_once(broker: MockKafka, sink: KafkaTaskSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client gives up none by itself, or it would go on with those behind it as soon as the broker is there again."""
    assert deliver(sink, KEYS[:1], 1) == 1
    broker.down()
    monkeypatch.setattr(options, "DELIVERY_TIMEOUT_MS", 1500)
    with pytest.raises(SinkUnavailable, match=r"11 of 11 messages not acknowledged, none for \d+ s, after: .*") as caught:
        deliver(sink, KEYS[1:], 2)
    assert caught.value.retryable
    sink.abandon()
    broker.up()
    assert deliver(sink, KEYS[1:], 3) == 11
    assert broker.keys(TOPIC) == KEYS


def test_events_that_are_not_acknowledged(broker: MockKafka, driver: KafkaDriverSink, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.send(TOPIC, KEYS[0], None, [0])
    driver.finish_batch(context())
    broker.down()
    monkeypatch.setattr(options, "DELIVERY_TIMEOUT_MS", 1000)
    driver.send_resolved([(TOPIC, 0)], b"resolved", None)
    with pytest.raises(SinkUnavailable, match="1 events not acknowledged, after: "):
        driver.finish_batch(context())


# Refusals of the client


def test_the_first_refusal_is_meant_only_at_the_start() -> None:
    fresh = Denials()
    fresh.denied(5.0)
    assert fresh.meant
    used = Denials(trusted=True)
    used.denied(5.0)
    assert not used.meant


def test_refusals_that_last_are_meant() -> None:
    found = Denials(trusted=True)
    for second in range(0, int(denials.LASTS_S), 2):
        found.denied(100.0 + second)
        assert not found.meant
    found.denied(100.0 + denials.LASTS_S)
    assert found.meant
    found.succeeded()
    assert not found.meant
    found.denied(200.0)
    found.denied(200.0 + denials.QUIET_S / 2)
    assert not found.meant, "two are not many"


def test_refusals_far_apart_have_nothing_to_do_with_each_other() -> None:
    found = Denials(trusted=True)
    for hour in range(100):
        found.denied(3600.0 * hour)
        assert not found.meant


class Refusing(NativeProducer):
    """A producer whose client reports a refusal at each look, for as long as it is told to."""

    refusing = True

    @property
    def client_error(self) -> int:
        return faults.AUTHENTICATION if self.refusing else 0


@pytest.mark.parametrize("lasts", [False, True])
def test_a_task_goes_on_after_a_refusal_that_passes(
    broker: MockKafka, sink: KafkaTaskSink, monkeypatch: pytest.MonkeyPatch, lasts: bool
) -> None:
    monkeypatch.setattr("tidemill.sinks.kafka.task.NativeProducer", Refusing)
    monkeypatch.setattr(denials, "LASTS_S", 1.0 if lasts else 1000.0)
    if not lasts:
        assert deliver(sink, KEYS, 1) == 12
        return
    broker.down()
    with pytest.raises(SinkError, match="Kafka 127") as caught:
        deliver(sink, KEYS, 1)
    assert not caught.value.retryable


def test_the_driver_goes_on_after_a_refusal_that_passes(
    broker: MockKafka, driver: KafkaDriverSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.send_resolved([(TOPIC, 0)], KEYS[0], None)
    driver.finish_batch(context())
    refusal = KafkaError(faults.AUTHENTICATION, "SASL authentication failed")
    driver._reported(refusal)
    driver.send_resolved([(TOPIC, 0)], KEYS[1], None)
    driver.finish_batch(context())
    assert broker.keys(TOPIC) == KEYS[:2]
    monkeypatch.setattr(denials, "LASTS_S", 0.0)
    for _ in range(denials.COUNTED):
        driver._reported(refusal)
    driver.send_resolved([(TOPIC, 0)], KEYS[2], None)
    with pytest.raises(SinkError, match="authentication failed") as caught:
        driver.finish_batch(context())
    assert not caught.value.retryable
