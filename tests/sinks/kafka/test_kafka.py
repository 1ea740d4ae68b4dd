"""kafka:// against a real broker: order, acknowledgements, topics, a broker that goes away and comes back."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.delivery.messages import context, messages_of
from tests.support.servers.kafka import Record, new_topic_name, read_topic
from tidemill.config.uri import parse_sink_uri
from tidemill.errors import ConfigError, MessageRefused, SinkError, SinkUnavailable
from tidemill.playground.programs.kafka_broker import KafkaBroker
from tidemill.sinks.kafka import options
from tidemill.sinks.kafka import task as kafka_task
from tidemill.sinks.kafka.task import KafkaTaskSink
from tidemill.sinks.spec import open_driver_sink

pytestmark = pytest.mark.kafka

Item = tuple[int, bytes | None, bytes | None]


@pytest.fixture
def topic() -> str:
    return new_topic_name()


@pytest.fixture
def sinks() -> Iterator[list[KafkaTaskSink]]:
    """Task sinks to be thrown away after the test."""
    made: list[KafkaTaskSink] = []
    yield made
    for sink in made:
        sink.abandon()


def address(broker: KafkaBroker, topic: str, parameters: str = "") -> str:
    return f"kafka://{broker.address}/{topic}?protocol=open-protocol" + (f"&{parameters}" if parameters else "")


def create(broker: KafkaBroker, topic: str, partitions: int, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result()


def opened(sinks: list[KafkaTaskSink], uri: str) -> KafkaTaskSink:
    sinks.append(KafkaTaskSink(parse_sink_uri(uri)))
    return sinks[-1]


def some_items(count: int, targets: int, seed: int = 1) -> list[Item]:
    chance = random.Random(seed)
    return [(chance.randrange(targets), b"%d" % i, None if i % 17 == 0 else b"v" * chance.randrange(300)) for i in range(count)]


def by_partition(records: list[Record]) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    found: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
    for record in records:
        found.setdefault(record.partition, []).append((record.key, record.value))
    return found


def expected(items: list[Item], partitions: int) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    return {p: [(key, value) for target, key, value in items if target == p] for p in range(partitions)}


def test_rows_then_ddl_then_resolved_in_order_to_every_partition(kafka_broker: KafkaBroker, topic: str, sinks: list[KafkaTaskSink]) -> None:
    uri = address(kafka_broker, topic, "partition-num=4")
    driver, sink = open_driver_sink(uri), opened(sinks, uri)
    assert driver.ensure_topics({topic}) == {topic: 4}
    targets = [(topic, p) for p in range(4)]
    sent: dict[int, list[tuple[bytes | None, bytes | None]]] = {p: [] for p in range(4)}
    for number in range(3):
        items = some_items(5000, 4, seed=number)
        driver.begin_batch(context(batch=number))
        sink.begin(context(batch=number))
        for start in range(0, len(items), 1500):
            sink.deliver(messages_of(items[start : start + 1500]), targets)
        assert sink.flush() == len(items)
        driver.send(topic, b"ddl", None, range(4))
        driver.send_resolved(targets, b"resolved", b"\0" * 8)
        driver.finish_batch(context(batch=number))
        for p, rows in expected(items, 4).items():
            sent[p] += [*rows, (b"ddl", None), (b"resolved", b"\0" * 8)]
    assert by_partition(read_topic(kafka_broker.address, topic)) == sent
    driver.close()


def test_several_topics_in_one_chunk(kafka_broker: KafkaBroker, sinks: list[KafkaTaskSink]) -> None:
    topics = [new_topic_name("multi") for _ in range(3)]
    uri = address(kafka_broker, topics[0], "partition-num=2")
    assert open_driver_sink(uri).ensure_topics(set(topics)) == dict.fromkeys(topics, 2)
    targets = [(topic, p) for p in range(2) for topic in topics]
    items = some_items(3000, len(targets))
    sink = opened(sinks, uri)
    sink.begin(context())
    sink.deliver(messages_of(items), targets)
    assert sink.flush() == len(items)
    for topic in topics:
        found = by_partition(read_topic(kafka_broker.address, topic))
        for p in range(2):
            target = targets.index((topic, p))
            assert found[p] == [(key, value) for t, key, value in items if t == target]


def test_null_and_empty(kafka_broker: KafkaBroker, topic: str, sinks: list[KafkaTaskSink]) -> None:
    uri = address(kafka_broker, topic, "partition-num=1")
    open_driver_sink(uri).ensure_topics({topic})
    sink = opened(sinks, uri)
    sink.begin(context())
    sink.deliver(messages_of([(0, b"", b""), (0, None, None), (0, b"k", None), (0, None, b"v")]), [(topic, 0)])
    assert sink.flush() == 4
    assert [(r.key, r.value) for r in read_topic(kafka_broker.address, topic)] == [(b"", b""), (None, None), (b"k", None), (None, b"v")]


@pytest.mark.parametrize("parameters", ["compression=lz4", "compression=zstd", "compression=gzip", "compression=snappy", "required-acks=1"])
def test_settings_that_the_producer_takes(kafka_broker: KafkaBroker, topic: str, sinks: list[KafkaTaskSink], parameters: str) -> None:
    uri = address(kafka_broker, topic, f"partition-num=1&max-retry=3&kafka-client-id=me&dial-timeout=2s&write-timeout=5s&{parameters}")
    driver, sink = open_driver_sink(uri), opened(sinks, uri)
    driver.ensure_topics({topic})
    items = some_items(2000, 1)
    sink.begin(context())
    sink.deliver(messages_of(items), [(topic, 0)])
    assert sink.flush() == len(items)
    driver.send_resolved([(topic, 0)], b"r", b"")
    driver.finish_batch(context())
    assert by_partition(read_topic(kafka_broker.address, topic))[0] == [*expected(items, 1)[0], (b"r", b"")]
    driver.close()


def test_a_narrow_window_keeps_order(
    kafka_broker: KafkaBroker, topic: str, sinks: list[KafkaTaskSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "WINDOW_BYTES", 20_000)
    monkeypatch.setattr(kafka_task, "_STEP_BYTES", 5_000)
    uri = address(kafka_broker, topic, "partition-num=3&max-message-bytes=2000000")
    open_driver_sink(uri).ensure_topics({topic})
    items = some_items(4000, 3)
    items[100:100] = [(1, b"big", b"x" * 1_500_000)]  # larger than the window
    sink = opened(sinks, uri)
    sink.begin(context())
    sink.deliver(messages_of(items), [(topic, p) for p in range(3)])
    assert sink.flush() == len(items)
    assert by_partition(read_topic(kafka_broker.address, topic)) == expected(items, 3)


def test_a_full_client_queue_keeps_order_or_fails(
    kafka_broker: KafkaBroker, topic: str, sinks: list[KafkaTaskSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = options.producer_config
    monkeypatch.setattr(options, "producer_config", lambda uri, limit: real(uri, limit) | {"queue.buffering.max.messages": "100"})
    uri = address(kafka_broker, topic, "partition-num=2")
    open_driver_sink(uri).ensure_topics({topic})
    items = some_items(6000, 2)
    sink = opened(sinks, uri)
    sink.begin(context())
    try:
        sink.deliver(messages_of(items), [(topic, p) for p in range(2)])
    except SinkUnavailable as error:
        assert "order would be lost" in str(error)  # noqa: PT017  either end is right
    else:
        assert sink.flush() == len(items)
        assert by_partition(read_topic(kafka_broker.address, topic)) == expected(items, 2)


def test_partition_num_is_checked_against_the_topic(kafka_broker: KafkaBroker, topic: str) -> None:
    create(kafka_broker, topic, 4)
    assert open_driver_sink(address(kafka_broker, topic)).ensure_topics({topic}) == {topic: 4}
    assert open_driver_sink(address(kafka_broker, topic, "partition-num=3")).ensure_topics({topic}) == {topic: 3}
    with pytest.raises(ConfigError, match=f"partition-num is 5, but topic {topic} has 4 partitions"):
        open_driver_sink(address(kafka_broker, topic, "partition-num=5")).ensure_topics({topic})


def test_missing_topics(kafka_broker: KafkaBroker, topic: str) -> None:
    with pytest.raises(SinkError, match=f"topic {topic} does not exist and auto-create-topic is false") as caught:
        open_driver_sink(address(kafka_broker, topic, "auto-create-topic=false")).ensure_topics({topic})
    assert not caught.value.retryable
    with pytest.raises(SinkError, match=f"creating topic {topic} .* replication factor 3: INVALID_REPLICATION_FACTOR") as caught:
        open_driver_sink(address(kafka_broker, topic, "replication-factor=3")).ensure_topics({topic})
    assert not caught.value.retryable
    driver = open_driver_sink(address(kafka_broker, topic))
    assert driver.ensure_topics({topic}) == {topic: 3}
    assert driver.ensure_topics({topic}) == {topic: 3}
    assert driver.ensure_topics(set()) == {}


def test_a_topic_or_partition_that_is_not_there(
    kafka_broker: KafkaBroker, topic: str, sinks: list[KafkaTaskSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = options.producer_config
    monkeypatch.setattr(options, "producer_config", lambda uri, limit: real(uri, limit) | {"topic.metadata.propagation.max.ms": "500"})
    create(kafka_broker, topic, 2)
    uri = address(kafka_broker, topic)
    sink = opened(sinks, uri)
    for target in ((topic, 9), (topic + "-nowhere", 0)):
        sink.begin(context())
        with pytest.raises(SinkUnavailable, match=target[0]):
            sink.deliver(messages_of([(0, b"k", b"v")]), [target]) or sink.flush()
        sink.abandon()
    driver = open_driver_sink(uri)
    driver.send(topic + "-nowhere", b"k", b"v", [0])
    with pytest.raises(SinkUnavailable, match="-nowhere/0: "):
        driver.finish_batch(context())
    driver.discard(context())
    driver.close()


def test_a_message_that_the_topic_does_not_take(kafka_broker: KafkaBroker, topic: str, sinks: list[KafkaTaskSink]) -> None:
    create(kafka_broker, topic, 1, **{"max.message.bytes": "2000"})
    sink = opened(sinks, address(kafka_broker, topic))
    sink.begin(context())
    sink.deliver(messages_of([(0, b"k", b"x" * 5000)]), [(topic, 0)])
    with pytest.raises(SinkError, match=f"{topic}/0: MSG_SIZE_TOO_LARGE") as caught:
        sink.flush()
    assert not caught.value.retryable
    sink.abandon()
    sink.begin(context(epoch=2))
    sink.deliver(messages_of([(0, b"k", b"small")]), [(topic, 0)])
    assert sink.flush() == 1


def test_a_broker_that_goes_away_and_comes_back(
    kafka_broker: KafkaBroker, topic: str, sinks: list[KafkaTaskSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for it has sent everything once and in order. Where it stays away too long the attempt fails, and nothing of it comes
    later."""
    patient, items = new_topic_name(), some_items(6000, 2)
    open_driver_sink(address(kafka_broker, patient, "partition-num=2")).ensure_topics({patient})
    waiting = opened(sinks, address(kafka_broker, patient, "partition-num=2"))
    waiting.begin(context())
    monkeypatch.setattr(options, "DELIVERY_TIMEOUT_MS", 3000)
    monkeypatch.setattr(options, "METADATA_TIMEOUT", 2.0)
    uri = address(kafka_broker, topic, "partition-num=1&sasl-mechanism=plain")
    with pytest.raises(ConfigError):
        open_driver_sink(uri)
    uri = address(kafka_broker, topic, "partition-num=1")
    driver, sink = open_driver_sink(uri), opened(sinks, uri)
    driver.ensure_topics({topic})
    sink.begin(context())
    sink.deliver(messages_of([(0, b"first", b"")]), [(topic, 0)])
    assert sink.flush() == 1
    waiting.deliver(messages_of(items[:3000]), [(patient, p) for p in range(2)])
    kafka_broker.stop(kill=True)
    try:
        waiting.deliver(messages_of(items[3000:]), [(patient, p) for p in range(2)])
        sink.begin(context(batch=2))
        sink.deliver(messages_of([(0, b"lost", b"")]), [(topic, 0)])
        with pytest.raises(SinkUnavailable, match=r"1 of 1 messages not acknowledged, none for .*refused") as caught:
            sink.flush()
        assert caught.value.retryable
        sink.begin(context(batch=2, epoch=2))
        sink.deliver(messages_of([(0, b"abandoned", b"")]), [(topic, 0)])
        sink.abandon()
        driver.send_resolved([(topic, 0)], b"resolved", b"")
        with pytest.raises(SinkUnavailable, match="1 events not acknowledged, after: "):
            driver.finish_batch(context(batch=2))
        driver.discard(context(batch=2))
        with pytest.raises(SinkUnavailable, match="describing topic"):
            open_driver_sink(uri).ensure_topics({topic})
    finally:
        monkeypatch.setattr(options, "DELIVERY_TIMEOUT_MS", 600_000)  # the patient one has had no answer all the time
        starter = threading.Thread(target=kafka_broker.start)
        starter.start()
        acked = waiting.flush()
        starter.join()
    monkeypatch.undo()
    assert acked == len(items)
    assert by_partition(read_topic(kafka_broker.address, patient)) == expected(items, 2), "idempotent: in order, nothing twice"
    sink.begin(context(batch=2, epoch=3))
    sink.deliver(messages_of([(0, b"second", b"")]), [(topic, 0)])
    assert sink.flush() == 1
    driver.send_resolved([(topic, 0)], b"resolved", b"")
    driver.finish_batch(context(batch=2))
    driver.close()
    assert [r.key for r in read_topic(kafka_broker.address, topic)] == [b"first", b"second", b"resolved"]


def test_nothing_of_a_topic_goes_out_behind_a_message_that_it_refuses(
    kafka_broker: KafkaBroker, topic: str, sinks: list[KafkaTaskSink]
) -> None:
    """Also what was under way: the broker knows from its sequence numbers that something is missing."""
    create(kafka_broker, topic, 1, **{"max.message.bytes": "200000"})
    sink = opened(sinks, address(kafka_broker, topic))
    sink.begin(context())
    sink.deliver(messages_of([(0, b"first", b"v")]), [(topic, 0)])
    assert sink.flush() == 1
    sink.begin(context(epoch=2))
    sink.deliver(messages_of([(0, b"too large", b"v" * 950_000)]), [(topic, 0)])
    with pytest.raises(MessageRefused, match=f"{topic}/0: MSG_SIZE_TOO_LARGE"):  # noqa: PT012
        for number in range(200):
            sink.deliver(messages_of([(0, b"%d" % number, b"v" * 150_000)]), [(topic, 0)])
        sink.flush()
    sink.abandon()
    assert [record.key for record in read_topic(kafka_broker.address, topic)] == [b"first"]


def test_a_client_that_died_between_two_looks_tells_what_it_died_of(
    kafka_broker: KafkaBroker, topic: str, sinks: list[KafkaTaskSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker's answer may come after the last look at the client and before the next message is queued."""
    create(kafka_broker, topic, 1, **{"max.message.bytes": "200000"})
    sink = opened(sinks, address(kafka_broker, topic))
    sink.begin(context())
    sink.deliver(messages_of([(0, b"too large", b"v" * 950_000)]), [(topic, 0)])
    producer = sink._opened()
    while not producer.fatal_error():
        producer.produce(topic, sink._messages.ctypes.data, 1)  # only a message behind it makes the client's state fatal
        producer.poll(50)
    monkeypatch.setattr(sink, "_wait_for_room", lambda _size: None)
    with pytest.raises(MessageRefused, match=f"{topic}/0: MSG_SIZE_TOO_LARGE"):
        sink.deliver(messages_of([(0, b"next", b"v")]), [(topic, 0)])


def test_secrets_are_in_no_error(
    kafka_broker: KafkaBroker, topic: str, sinks: list[KafkaTaskSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "DELIVERY_TIMEOUT_MS", 2000)
    monkeypatch.setattr(options, "METADATA_TIMEOUT", 2.0)
    uri = address(kafka_broker, topic, "sasl-user=zq8user&sasl-password=zq7secret")
    told = []
    with pytest.raises(SinkError) as caught:
        open_driver_sink(uri).ensure_topics({topic})
    told.append(str(caught.value))
    sink = opened(sinks, uri)
    sink.begin(context())
    sink.deliver(messages_of([(0, b"k", b"v")]), [(topic, 0)])
    with pytest.raises(SinkError) as caught:
        sink.flush()
    told.append(str(caught.value))
    assert not any("zq7" in text or "zq8" in text for text in told), told


def test_described_topics_are_not_created_by_asking(kafka_broker: KafkaBroker, topic: str) -> None:
    with pytest.raises(SinkError):
        open_driver_sink(address(kafka_broker, topic, "auto-create-topic=false")).ensure_topics({topic})
    admin = AdminClient({"bootstrap.servers": kafka_broker.address})
    found = admin.describe_topics(TopicCollection([topic]))
    with pytest.raises(Exception, match="UNKNOWN_TOPIC_OR_PART"):
        found[topic].result()
