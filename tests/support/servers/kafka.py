"""A real Kafka broker for tests: one a session, on free ports, stopped at the end. Plus a reader of whole topics."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.support.faults.proxy import Proxy
from tidemill.playground.programs.kafka_broker import KafkaBroker
from tidemill.process.ports import free_ports

_numbers = itertools.count()


class Record(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class Link(NamedTuple):
    """A way to the broker of the session through a proxy: whoever comes to `address` is told no other."""

    broker: KafkaBroker
    proxy: Proxy
    address: str


@pytest.fixture(scope="session")
def kafka_link() -> Iterator[Link]:
    proxy, broker = Proxy(), KafkaBroker()
    inner = free_ports(1)[0]
    link = f"127.0.0.1:{proxy.port}"
    broker.settings.update(
        {
            "listeners": f"PLAINTEXT://{broker.address},LINK://127.0.0.1:{inner},CONTROLLER://{broker.controller_address}",
            "advertised.listeners": f"PLAINTEXT://{broker.address},LINK://{link}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LINK:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }
    )
    with broker:
        proxy.start(inner)
        yield Link(broker, proxy, link)
        proxy.close()


@pytest.fixture(scope="session")
def kafka_broker(kafka_link: Link) -> KafkaBroker:
    """The broker of the session: tests/conftest.py makes it known to all tests."""
    return kafka_link.broker


def new_topic_name(prefix: str = "t") -> str:
    """A topic name that no other test has."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


def _end(consumer: Consumer, topic: str, partition: int, seconds: float) -> int:
    """The offset behind the last message. A consumer may hear of a topic before it knows the topic's partitions."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), seconds)[1])
        except KafkaException as error:
            if error.args[0].code() != KafkaError._UNKNOWN_PARTITION or time.monotonic() > deadline:
                raise
        consumer.list_topics(topic, seconds)


def read_topic(broker: str, topic: str, seconds: float = 30.0) -> list[Record]:
    """Everything in a topic up to its ends as of now, by partition and offset."""
    consumer = Consumer(
        {"bootstrap.servers": broker, "group.id": "tests", "enable.auto.commit": False, "fetch.message.max.bytes": 67108864}
    )
    try:
        partitions = sorted(consumer.list_topics(topic, seconds).topics[topic].partitions)
        ends = {p: _end(consumer, topic, p, seconds) for p in partitions}
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        found: list[Record] = []
        open_partitions = {p for p, end in ends.items() if end}
        while open_partitions:
            message = consumer.poll(seconds)
            if message is None:
                raise TimeoutError(f"{topic}: partitions {open_partitions} not read to their ends")
            assert message.error() is None, message.error()
            found.append(Record(message.partition(), message.offset(), message.key(), message.value()))
            if message.offset() + 1 >= ends[message.partition()]:
                open_partitions.discard(message.partition())
        return sorted(found)
    finally:
        consumer.close()
