"""librdkafka's own mock cluster: one broker in this process, without Java, whose answers tests choose."""

from __future__ import annotations

import ctypes as c
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, TopicPartition

from tidemill.sinks.kafka.native import library

PRODUCE, METADATA = 0, 3
BROKER = 1


class MockKafka:
    """A context manager."""

    def __init__(self) -> None:
        self._lib = lib = library()
        self._lib.rd_kafka_mock_cluster_new.restype = c.c_void_p
        lib.rd_kafka_mock_cluster_new.argtypes = [c.c_void_p, c.c_int]
        lib.rd_kafka_mock_cluster_destroy.argtypes = [c.c_void_p]
        lib.rd_kafka_mock_cluster_bootstraps.restype = c.c_char_p
        lib.rd_kafka_mock_cluster_bootstraps.argtypes = [c.c_void_p]
        lib.rd_kafka_mock_push_request_errors_array.argtypes = [c.c_void_p, c.c_int16, c.c_size_t, c.c_void_p]
        lib.rd_kafka_mock_topic_create.argtypes = [c.c_void_p, c.c_char_p, c.c_int, c.c_int]
        lib.rd_kafka_mock_broker_set_down.argtypes = [c.c_void_p, c.c_int32]
        lib.rd_kafka_mock_broker_set_up.argtypes = [c.c_void_p, c.c_int32]
        text = c.create_string_buffer(512)
        self._client = lib.rd_kafka_new(0, lib.rd_kafka_conf_new(), text, len(text))
        self._cluster = lib.rd_kafka_mock_cluster_new(self._client, 1)

    @property
    def address(self) -> str:
        """HOST:PORT."""
        text: bytes = self._lib.rd_kafka_mock_cluster_bootstraps(self._cluster)
        return text.decode()

    def create(self, topic: str, partitions: int = 1) -> None:
        """Make a topic."""
        assert self._lib.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1) == 0

    def refuse(self, request: int, *codes: int) -> None:
        """The next requests of a kind are answered with these errors."""
        self._lib.rd_kafka_mock_push_request_errors_array(self._cluster, request, len(codes), (c.c_int * len(codes))(*codes))

    def down(self) -> None:
        """Let the broker go away."""
        self._lib.rd_kafka_mock_broker_set_down(self._cluster, BROKER)

    def up(self) -> None:
        """Let the broker come back."""
        self._lib.rd_kafka_mock_broker_set_up(self._cluster, BROKER)

    def keys(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """The keys of all messages of a partition."""
        settings: dict[str, Any] = {"bootstrap.servers": self.address, "group.id": "reader", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings)
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[bytes | None] = []
        while len(found) < end:
            message = consumer.poll(1.0)  # not consume(), which waits for as many as it is asked for
            if message is not None and message.error() is None:
                found.append(message.key())
        consumer.close()
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lib.rd_kafka_mock_cluster_destroy(self._cluster)
        self._lib.rd_kafka_destroy(self._client)
