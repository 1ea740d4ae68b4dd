"""`kafka://HOST:PORT/TOPIC`: the changes of a view as messages (`kafka_messages`), each interval in one Kafka transaction.

The transaction ends with a message in every partition that says the resolved ts. A consumer that reads what is committed sees an interval
whole or not at all, and once. Where a process died, the next one takes over its transactional id: Kafka ends or undoes the transaction that
was open, and the last of those messages says what was delivered.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from tidemill.config.uri import SinkUri
from tidemill.errors import ConfigError, SinkError, SinkUnavailable
from tidemill.extras import extra
from tidemill.sinks.kafka import faults, options
from tidemill.sinks.kafka.driver import KafkaDriverSink
from tidemill.views.shape import Shape
from tidemill.views.targets.base import split
from tidemill.views.targets.kafka_messages import HEADER, Message, Messages, mark_of

with extra("kafka"):
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
    from confluent_kafka.cimpl import Message as Received

log = logging.getLogger(__name__)

COMPACTED = {"cleanup.policy": "compact"}
"""A topic that is made for a view keeps the last message of each key: a new consumer finds every row, however old."""
_TRANSACTION_MS = 900_000  # the most that brokers allow by default: the first interval may be a whole table
_ANSWER_S = 60.0
_FIRST_LOOK = 64  # messages at the end of a partition, among which the last mark is sought first
_EVERY_PARTITION = -1  # librdkafka's partitioner chooses, by the key

Headers = list[tuple[str, str | bytes | None]]

_SILENT = logging.getLogger("tidemill.views.targets.kafka.client")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class KafkaTarget:
    """See `Target`. Not safe for threads."""

    def __init__(self, uri: SinkUri, name: str, feed: str, shape: Shape) -> None:
        if uri.broker.required_acks != -1:
            raise ConfigError("--into kafka://: a view needs required-acks=-1", hint="Leave required-acks out.")
        self._uri, self._feed, self._shape, self._topic = uri, feed, shape, uri.topic
        self._messages = Messages(name, feed, shape)
        self._where = f"Kafka {','.join(uri.broker.hosts)}: topic {uri.topic}"
        self._driver = KafkaDriverSink(uri, COMPACTED)
        self._producer: Producer | None = None
        self._partitions = 0
        self._known = 0  # what is delivered, while there is a producer
        self._failure: KafkaError | None = None
        self._noticed = ""

    def create(self) -> None:
        self._partitions = self._driver.ensure_topics({self._topic})[self._topic]
        found = self._last_mark()
        if found is not None:
            self._check_owner(found[0])
            return
        if any(self._has_messages(partition) for partition in range(self._partitions)):
            raise SinkError(f"{self._where} has messages of others", hint="A topic holds one view: name another topic, or empty this one.")
        self._begin()
        self._commit((), 0)

    def delivered(self) -> int:
        self._opened()
        return self._known

    def deliver(self, changes: pa.Table, to_ts: int) -> None:
        self._opened()
        if self._known >= to_ts:
            return
        comes, _, goes = split(changes, self._shape)
        self._commit(self._messages.rows(comes, goes, to_ts), to_ts)

    def resolved(self, ts: int) -> None:
        self._opened()
        if ts > self._known:
            self._commit((), ts)

    def drop(self) -> None:
        """Remove the topic. Without auto-create-topic it belongs to the user, and stays."""
        if self._topic not in self._driver.existing({self._topic}):
            return
        found = self._last_mark()
        if found is not None:
            self._check_owner(found[0])
        if self._uri.broker.auto_create_topic:
            self._driver.remove_topic(self._topic)
        else:
            log.warning("%s stays, for auto-create-topic is false", self._where)

    def close(self) -> None:
        self._forget()
        self._driver.close()

    # ---- sending

    def _opened(self) -> None:
        """Take over the view's transactional id, and look what is delivered."""
        if self._producer is not None:
            return
        counts = self._driver.existing({self._topic})
        if self._topic not in counts:
            raise SinkError(f"{self._where} does not exist any more", hint="Drop the view and create it again.")
        self._partitions = counts[self._topic]
        self._begin()
        try:
            found = self._last_mark()
            if found is None:
                raise SinkError(f"{self._where} does not know the view any more", hint="Drop the view and create it again.")
            self._check_owner(found[0])
        except SinkError:
            self._forget()  # what is delivered is not known: the next attempt looks again
            raise
        self._known = found[1]

    def _begin(self) -> None:
        wanted = self._uri.partition_num
        if wanted is not None and wanted != self._partitions:
            raise ConfigError(f"{self._where} has {self._partitions} partitions, and partition-num is {wanted}: a view uses all of them")
        limits = self._driver.message_limits({self._topic}).values()
        config: dict[str, Any] = options.producer_config(self._uri, min(limits, default=None)) | {
            "transactional.id": self._feed,
            "transaction.timeout.ms": str(_TRANSACTION_MS),
            "message.timeout.ms": str(options.DELIVERY_TIMEOUT_MS),
            "partitioner": "murmur2_random",  # as Kafka's Java client, so that tables of others join partition by partition
            "error_cb": self._told,
        }
        with self._failing("beginning"):
            producer = Producer(config, logger=_SILENT)
            self._producer, self._failure, self._known = producer, None, 0
            producer.init_transactions(_ANSWER_S)

    def _commit(self, messages: Iterable[Message], ts: int) -> None:
        assert self._producer is not None, "it was opened"
        producer = self._producer
        headers: Headers = [(HEADER, str(ts).encode())]
        with self._failing(f"sending up to {ts}"):
            producer.begin_transaction()
            for key, value in messages:
                self._send(producer, key, value, _EVERY_PARTITION, headers)
            key, value = self._messages.mark(ts)
            for partition in range(self._partitions):
                self._send(producer, key, value, partition, headers)
            producer.commit_transaction(options.DELIVERY_TIMEOUT_MS / 1000 + _ANSWER_S)
        self._known = ts

    def _send(self, producer: Producer, key: bytes, value: bytes | None, partition: int, headers: Headers) -> None:
        while True:
            try:
                producer.produce(self._topic, value, key, partition, on_delivery=self._answered, headers=headers)
            except BufferError:
                producer.poll(0.2)
                self._raise_failure()
                continue
            producer.poll(0)
            self._raise_failure()
            return

    def _answered(self, error: KafkaError | None, message: Received) -> None:
        if error is not None and self._failure is None:
            self._failure = error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise KafkaException(self._failure)

    def _told(self, error: KafkaError) -> None:
        self._noticed = error.str()

    @contextmanager
    def _failing(self, doing: str) -> Iterator[None]:
        """After any failure another producer begins, which undoes what this one has left open."""
        done = False
        try:
            yield
            done = True
        except KafkaException as error:
            raise self._error(self._failure or error.args[0], doing) from None
        finally:
            if not done:
                self._forget()

    def _error(self, cause: KafkaError, doing: str) -> SinkError:
        text = f"{self._where}: {doing}: {cause.name()}: {cause.str()}{self._context()}"
        if cause.code() == KafkaError._FENCED:
            return SinkError(text, hint="Another process delivers the same view: one of them has to end.")
        return faults.sink_error(cause.code(), text)

    def _context(self) -> str:
        return f", after: {self._noticed}" if self._noticed else ""

    def _forget(self) -> None:
        """Drop the producer, so that nothing of a failed attempt is sent later."""
        if self._producer is not None:
            self._producer.purge(in_queue=True, in_flight=True, blocking=False)
            self._producer.flush(1.0)
        self._producer, self._failure, self._known = None, None, 0

    # ---- looking

    def _check_owner(self, feed: str) -> None:
        if feed != self._feed:
            raise SinkError(f"{self._where} belongs to {feed}, another view", hint="Drop that view, or name another topic.")

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        config: dict[str, Any] = options.client_config(self._uri.broker) | {
            "group.id": self._feed,  # the client wants one; nothing is committed to it
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "error_cb": self._told,
        }
        try:
            consumer = Consumer(config, logger=_SILENT)
            try:
                yield consumer
            finally:
                consumer.close()
        except KafkaException as error:
            raise self._error(error.args[0], "reading") from None

    def _last_mark(self) -> tuple[str, int] | None:
        """Return feed and resolved ts of the last interval that was committed. All partitions say the same; the first one is read."""
        with self._consumer() as consumer:
            low, end = self._ends(consumer, 0)
            look = _FIRST_LOOK
            while end > low:
                start = max(low, end - look)
                marks = [mark for one in self._read(consumer, 0, start, end) if (mark := mark_of(one.key(), one.value())) is not None]
                if marks:
                    return marks[-1]
                end, look = start, 4 * look
        return None

    def _has_messages(self, partition: int) -> bool:
        with self._consumer() as consumer:
            return next(self._read(consumer, partition, *self._ends(consumer, partition)), None) is not None

    def _ends(self, consumer: Consumer, partition: int) -> tuple[int, int]:
        """The first and the next offset of a partition. Of a new topic a client may not know the partitions for a moment, or a broker its
        leaders."""
        deadline = time.monotonic() + _ANSWER_S
        while True:
            consumer.list_topics(self._topic, _ANSWER_S)
            try:
                low, high = consumer.get_watermark_offsets(TopicPartition(self._topic, partition), _ANSWER_S, cached=False)
            except KafkaException as error:
                if faults.lasting(error.args[0].code()) or time.monotonic() > deadline:
                    raise
            else:
                return low, high

    def _read(self, consumer: Consumer, partition: int, start: int, end: int) -> Iterator[Received]:
        """Yield the messages of [start, end). Behind the last one there may be only marks of transactions, which a consumer skips."""
        if start >= end:
            return
        consumer.assign([TopicPartition(self._topic, partition, start)])
        while True:
            message = consumer.poll(_ANSWER_S)
            if message is None:
                raise SinkUnavailable(
                    f"{self._where}: nothing came for {_ANSWER_S:.0f} s{f', after: {self._noticed}' * bool(self._noticed)}"
                )
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return
                raise KafkaException(error)
            offset = message.offset()
            assert offset is not None, "it was received"
            if offset >= end:
                return
            yield message
