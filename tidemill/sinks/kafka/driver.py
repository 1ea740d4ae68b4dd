"""The driver half of the Kafka sink: topics, DDLs and resolved events, through the Python client."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, TypeVar

from tidemill.config.uri import NEW_TOPIC_PARTITIONS, SinkUri
from tidemill.errors import ConfigError, SinkError, SinkUnavailable, redact
from tidemill.extras import extra
from tidemill.sinks.base import BatchContext, FenceCheck, Target, no_fence_check
from tidemill.sinks.event_messages import MessageDriver
from tidemill.sinks.kafka import faults, options
from tidemill.sinks.kafka.denials import Denials
from tidemill.sinks.kafka.statistics import broker_figures

with extra("kafka"):
    from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicCollection
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._config import ConfigResource
    from confluent_kafka.admin._resource import ResourceType
    from confluent_kafka.cimpl import NewTopic

_MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}
_FORBIDDEN = KafkaError.TOPIC_AUTHORIZATION_FAILED
_VISIBLE_SECONDS = 30.0

log = logging.getLogger(__name__)
_VISIBLE_EVERY = 0.1

# The error callback gets all that matters in the client's log.
_SILENT = logging.getLogger("tidemill.sinks.kafka.client")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

_T = TypeVar("_T")


class KafkaDriverSink(MessageDriver):
    """See `DriverSink`."""

    def __init__(self, uri: SinkUri, topic_settings: Mapping[str, str] | None = None) -> None:
        """`topic_settings`: of topics that it creates."""
        self._uri, self._topic_settings = uri, dict(topic_settings or {})
        self._where = f"Kafka {','.join(uri.broker.hosts)}"
        self._admin: AdminClient | None = None
        self._producer: Producer | None = None
        self._failure: SinkError | None = None
        self._client_error = ""
        self._denials = Denials()
        self._unflushed_ddl = False
        self._limit: int | None = None  # the smallest message limit of the topics
        self._said: set[str] = set()
        self._check_fence: FenceCheck = no_fence_check
        self._statistics = "{}"  # of the producer, as the client last told them

    # Topics

    def ensure_topics(self, topics: set[str]) -> dict[str, int]:
        """Create missing topics if auto-create-topic, and return how many partitions of each topic are used: all, or partition-num."""
        if not topics:
            return {}
        counts = self.existing(topics)
        missing = sorted(topics - counts.keys())
        if missing:
            self._create(missing)
            counts |= self._await_visible(missing)
        return {topic: self._used(topic, count) for topic, count in counts.items()}

    def _used(self, topic: str, count: int) -> int:
        wanted = self._uri.partition_num
        if wanted is not None and wanted > count:
            raise ConfigError(
                f"{self._where}: partition-num is {wanted}, but topic {topic} has {count} partitions",
                hint="Lower partition-num, leave it out, or add partitions to the topic.",
            )
        return wanted or count

    def existing(self, topics: set[str]) -> dict[str, int]:
        """Return the partition counts of the topics that exist."""
        admin = self._admin_client()
        futures = self._calling(
            "describing topics", lambda: admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=options.METADATA_TIMEOUT)
        )
        found: dict[str, int] = {}
        for topic, future in futures.items():
            try:
                found[topic] = len(future.result().partitions)
            except KafkaException as error:
                if error.args[0].code() not in _MISSING:
                    raise self._sink_error(error, f"describing topic {topic}") from None
        self._denials.succeeded()
        return {topic: count for topic, count in found.items() if count}

    def _create(self, topics: list[str]) -> None:
        kafka = self._uri.broker
        if not kafka.auto_create_topic:
            raise SinkError(
                f"{self._where}: topic {topics[0]} does not exist and auto-create-topic is false",
                hint="Create it, or leave auto-create-topic out.",
            )
        partitions = self._uri.partition_num or NEW_TOPIC_PARTITIONS
        admin = self._admin_client()
        new = [
            NewTopic(topic, num_partitions=partitions, replication_factor=kafka.replication_factor, config=self._topic_settings)
            for topic in topics
        ]
        futures = self._calling("creating topics", lambda: admin.create_topics(new, request_timeout=options.METADATA_TIMEOUT))
        for topic, future in futures.items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    doing = f"creating topic {topic} with {partitions} partitions and replication factor {kafka.replication_factor}"
                    raise self._sink_error(error, doing) from None

    def remove_topic(self, topic: str) -> None:
        """Delete a topic with all of its messages. Nothing happens if it is gone already."""
        admin = self._admin_client()
        futures = self._calling("deleting topics", lambda: admin.delete_topics([topic], request_timeout=options.METADATA_TIMEOUT))
        try:
            futures[topic].result()
        except KafkaException as error:
            if error.args[0].code() not in _MISSING:
                raise self._sink_error(error, f"deleting topic {topic}") from None

    def _await_visible(self, topics: list[str]) -> dict[str, int]:
        """Wait until new topics are in the brokers' metadata. That takes a moment, and Kafka has no call that waits for it."""
        deadline = time.monotonic() + _VISIBLE_SECONDS
        pause = threading.Event()
        while True:
            counts = self.existing(set(topics))
            if len(counts) == len(topics):
                return counts
            if time.monotonic() > deadline:
                absent = next(topic for topic in topics if topic not in counts)
                raise SinkUnavailable(f"{self._where}: topic {absent} was created but is not visible after {_VISIBLE_SECONDS:.0f} s")
            pause.wait(_VISIBLE_EVERY)

    def message_limits(self, topics: Set[str]) -> Mapping[str, int]:
        """Return max.message.bytes of each topic, less the overhead of a record batch. Without the right to ask, return none."""
        names = sorted(topics)
        found = {}
        for topic, future in self._described(names).items():
            try:
                settings = future.result()
                found[topic] = max(1, int(settings["max.message.bytes"].value) - options.RECORD_HEADROOM)
            except KafkaException as error:
                if error.args[0].code() != _FORBIDDEN:
                    raise self._sink_error(error, f"asking for the settings of topic {topic}") from None
                self._warn_once(f"{self._where}: without the right DescribeConfigs on topic {topic} its max.message.bytes is not known")
        limits = [*found.values()]
        if limits and min(limits) != self._limit:
            self._flush_and_drop()
            self._limit = min(limits)
        return found

    def _described(self, topics: Sequence[str]) -> dict[str, Any]:
        admin = self._admin_client()
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        if not resources:
            return {}
        futures = self._calling("asking for settings", lambda: admin.describe_configs(resources, request_timeout=options.METADATA_TIMEOUT))
        return {resource.name: future for resource, future in futures.items()}

    def _flush_and_drop(self) -> None:
        """Flush and drop the producer. The next one gets other settings."""
        self._flush()
        self._drop_producer()

    def _warn_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            log.warning("%s", text)

    # Events

    def begin_batch(self, ctx: BatchContext) -> None:
        self._unflushed_ddl = False
        self._check_fence = ctx.check_fence

    def send(self, topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[int]) -> None:
        if self._unflushed_ddl:
            self._flush()  # if a DDL is refused, the next one must not be sent
        for partition in partitions:
            self._produce(topic, partition, key, value)
        self._unflushed_ddl = True

    def send_resolved(self, targets: Sequence[Target], key: bytes | None, value: bytes | None) -> None:
        if self._unflushed_ddl:
            self._flush()
            self._unflushed_ddl = False
        for topic, partition in targets:
            self._produce(topic, partition, key, value)

    def finish_batch(self, ctx: BatchContext) -> None:
        self._flush()

    def discard(self, ctx: BatchContext) -> None:
        self._drop_producer()

    def close(self) -> None:
        self._drop_producer()
        self._admin = None

    def _produce(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> None:
        producer = self._opened()
        while True:
            try:
                producer.produce(topic, value, key, partition, on_delivery=self._delivered)
                producer.poll(0)
                return
            except BufferError:
                producer.poll(0.2)
                self._raise_failure()
            except KafkaException as error:
                raise self._sink_error(error, f"sending to {topic}/{partition}") from None

    def _flush(self) -> None:
        if self._producer is None:
            return
        waited, since = len(self._producer), time.monotonic()
        while left := self._producer.flush(0.2):
            self._raise_failure()
            self._check_fence()
            if left < waited:
                waited, since = left, time.monotonic()
            if time.monotonic() - since > options.DELIVERY_TIMEOUT_MS / 1000:
                raise SinkUnavailable(f"{self._where}: {left} events not acknowledged{self._context()}")
        self._raise_failure()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._failure is None:
            doing = f"{self._where}: {message.topic()}/{message.partition()}"
            self._failure = faults.sink_error(error.code(), f"{doing}: {error.name()}: {error.str()}{self._context()}")
        if error is None:
            self._denials.succeeded()

    def _reported(self, error: KafkaError) -> None:
        self._noticed(error)
        is_meant = error.code() == faults.AUTHENTICATION and self._denials.meant
        if self._failure is None and (error.fatal() or is_meant):
            self._failure = faults.from_kafka(error, self._where)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _context(self) -> str:
        return f", after: {self._client_error}" if self._client_error else ""

    # Clients

    def _admin_client(self) -> AdminClient:
        if self._admin is None:
            config: dict[str, Any] = {**options.client_config(self._uri.broker), "error_cb": self._noticed}
            self._admin = self._calling("settings", lambda: AdminClient(config, logger=_SILENT))
        return self._admin

    def _noticed(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._client_error:
            return  # the error before it says why
        self._client_error = error.str()
        if error.code() == faults.AUTHENTICATION:
            self._denials.denied(time.monotonic())

    def _opened(self) -> Producer:
        if self._producer is None:
            config: dict[str, Any] = options.producer_config(self._uri, self._limit) | {
                "error_cb": self._reported,
                "stats_cb": self._counted,
            }
            config["statistics.interval.ms"] = options.STATISTICS_MS
            self._producer = self._calling("settings", lambda: Producer(config, logger=_SILENT))
        return self._producer

    def _counted(self, statistics: str) -> None:
        self._statistics = statistics

    def brokers(self) -> list[dict[str, Any]]:
        """See `HasBrokers`. Of the driver's own messages, which go to every partition: DDLs and resolved events."""
        return broker_figures(self._statistics)

    def _drop_producer(self) -> None:
        """Drop the producer, so that nothing of a failed attempt is sent later."""
        if self._producer is not None:
            self._producer.purge(in_queue=True, in_flight=True, blocking=False)
            self._producer.flush(1.0)
        self._producer, self._failure, self._unflushed_ddl = None, None, False

    def _calling(self, doing: str, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except KafkaException as error:
            raise self._sink_error(error, doing) from None

    def _sink_error(self, error: KafkaException, doing: str) -> SinkError:
        cause: KafkaError = error.args[0]
        if self._admin is not None:
            self._admin.poll(0)  # serves the error callback
        text = f"{self._where}: {doing}: {cause.name()}: {cause.str()}{self._context()}"
        if cause.code() == faults.AUTHENTICATION:
            self._admin = None  # the next one reads the password again
        if cause.code() == faults.AUTHENTICATION and not self._denials.meant:
            return SinkUnavailable(redact(text))
        return faults.sink_error(faults.AUTHENTICATION if self._denials.meant else cause.code(), text)
