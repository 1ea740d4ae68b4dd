"""Reads topics of a Kafka cluster from given offsets. IO."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from tidemill.consumer.order import progress
from tidemill.consumer.upstream import Upstream
from tidemill.errors import TopicError, TopicUnavailable
from tidemill.extras import extra
from tidemill.sinks.kafka.denials import Denials
from tidemill.sinks.kafka.options import METADATA_TIMEOUT, client_config

with extra("kafka"):
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

T = TypeVar("T")

log = logging.getLogger(__name__)

_DEFAULT_GROUP = "tidemill-consume"
_QUEUED_KBYTES = 64 * 1024  # read ahead, over all partitions
_FRAMING = 1 << 20
ASK_S = 1.0  # timeout of one call; calls are repeated up to METADATA_TIMEOUT
_DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
}
_UNANSWERED = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}
_GONE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}

# The error callback gets all that matters in the client's log.
_SILENT = logging.getLogger("tidemill.consumer.kafka.client")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class Record(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class Found(NamedTuple):
    """The cluster's id, all partitions to read, and the topics and patterns that match nothing."""

    cluster: str
    partitions: list[progress.TopicPartition]
    absent: tuple[str, ...] = ()


def no_such_topic(names: Iterable[str]) -> TopicError:
    """Return the error about missing topics. With --stop-at-end they have to exist."""
    return TopicError(
        f"no such topic: {', '.join(names)}",
        hint="Look at its spelling and the brokers' address; without --stop-at-end it is waited for.",
    )


class KafkaTopics:
    """A reader that keeps its own offsets. Raises TopicError (give up) or TopicUnavailable (try again)."""

    def __init__(self, upstream: Upstream, group: str = "", *, reads: bool = True) -> None:
        """`reads`: False where another component fetches the messages, and this one only looks up topics and offsets."""
        self._upstream, self._group, self._reads = upstream, group, reads
        self._where = f"Kafka {','.join(upstream.kafka.hosts)}"
        self._trouble = ""
        self._denials = Denials()
        self._all_down = self._reading = False
        config = client_config(upstream.kafka) | {
            "group.id": group or _DEFAULT_GROUP,
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            "auto.offset.reset": "error",
            "queued.max.messages.kbytes": str(_QUEUED_KBYTES),
            "fetch.message.max.bytes": str(min(1_000_000_000, upstream.max_message_bytes + _FRAMING)),
            "topic.metadata.refresh.interval.ms": "10000",
        }
        self._consumer = Consumer({**config, "error_cb": self._on_error}, logger=_SILENT)

    def _on_error(self, error: Any) -> None:
        if error.code() in _DENIED:
            self._denials.denied(time.monotonic())
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._all_down = True
            if self._trouble:
                return  # the error before it says why
        self._trouble = error.str()

    def _asked(self, doing: str, ask: Callable[[float], T]) -> T:
        """Call the brokers and return the answer. The call is repeated with a short timeout, because the client reports connection errors
        only in between. So brokers that are away are noticed early."""
        deadline = time.monotonic() + METADATA_TIMEOUT
        self._all_down = False
        while True:
            left = deadline - time.monotonic()
            try:
                answer = ask(max(0.1, min(ASK_S, left)))
            except KafkaException as error:
                if not self._reading:
                    self._consumer.poll(0)  # serves the error callback; there is nothing to read
                if error.args[0].code() not in _UNANSWERED or self._all_down or self._denials.meant or left <= ASK_S:
                    raise self._topic_error(error.args[0], doing) from None
            else:
                self._denials.succeeded()
                return answer

    def discover(self) -> Found:
        """Return the partitions that exist now. A named topic that is missing is awaited, because its writer creates it."""
        metadata = self._asked("listing topics", lambda timeout: self._consumer.list_topics(timeout=timeout))
        found: list[progress.TopicPartition] = []
        for name, topic in metadata.topics.items():
            if self._upstream.wants(name):
                if topic.error is not None:
                    raise self._topic_error(topic.error, f"topic {name}")
                numbers = sorted(topic.partitions)
                found += [(name, number) for number in numbers[: self._upstream.partition_num]]
        return Found(str(metadata.cluster_id or ""), sorted(found), self._upstream.absent({name for name, _ in found}))

    def require(self) -> None:
        """Raise TopicError for a missing topic. Unreachable brokers are not an error here."""
        try:
            absent = self.discover().absent
        except TopicUnavailable:
            return
        if absent:
            raise no_such_topic(absent)

    def bounds(self, source: progress.TopicPartition) -> tuple[int, int]:
        """Return the first kept offset, and the offset after the last message."""
        where = TopicPartition(*source)
        doing = f"offsets of {source[0]}[{source[1]}]"
        low, high = self._asked(doing, lambda timeout: self._consumer.get_watermark_offsets(where, timeout=timeout))
        return low, high

    def follow(self, offsets: Mapping[progress.TopicPartition, int]) -> None:
        """Read more partitions, from these offsets on."""
        if offsets and self._reads:
            self._reading = True
            self._consumer.incremental_assign([TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()])

    def forget(self, sources: Iterable[progress.TopicPartition]) -> None:
        """Stop reading partitions."""
        if not self._reads:
            return
        self._consumer.incremental_unassign([TopicPartition(*source) for source in sources])

    def poll(self, most: int, timeout_s: float) -> list[Record]:
        """Return up to `most` messages, none after the timeout."""
        found: list[Record] = []
        for message in self._consumer.consume(most, timeout_s):
            error = message.error()
            if error is not None:
                self._refuse(error, message)
                continue
            self._trouble = ""
            self._denials.succeeded()
            found.append(Record(message.topic() or "", message.partition() or 0, message.offset() or 0, message.key(), message.value()))
        if not found and self._denials.meant:
            raise TopicError(f"{self._where} refuses: {self._trouble}")
        return found

    @property
    def trouble(self) -> str:
        """The client's last report about its connections. Empty while messages come."""
        return self._trouble

    def _refuse(self, error: Any, message: Any) -> None:
        """Raise errors that the client does not recover from by itself."""
        place = f"{message.topic()}[{message.partition()}]"
        if error.code() in _GONE:
            raise TopicError(
                f"{self._where}: {place}: the messages from offset {message.offset()} on are not there any more: {error.str()}",
                hint="The topic's retention took them, or it was made again. Begin with a new sink and a changefeed from an earlier ts.",
            )
        if error.code() in _DENIED:
            self._denials.denied(time.monotonic())
        if error.fatal() or (error.code() in _DENIED and self._denials.meant):
            raise TopicError(f"{self._where}: {place}: {error.str()}")
        self._trouble = error.str()

    def commit(self, done: progress.Progress) -> None:
        """Commit the group's offsets, so that tools can show lag. The consumer itself does not use them."""
        if self._group:
            listed = [TopicPartition(topic, number, p.offset) for (topic, number), p in done.partitions.items()]
            try:
                self._consumer.commit(offsets=listed, asynchronous=True)
            except KafkaException as error:
                log.warning("offsets of group %s could not be committed: %s", self._group, error.args[0].str())

    def _topic_error(self, error: Any, doing: str) -> TopicError:
        if error.code() in _DENIED:
            self._denials.denied(time.monotonic())
        if self._denials.meant:
            return TopicError(f"{self._where}: {doing}: {self._trouble or error.str()}")
        reason = f"{error.str()} ({self._trouble})" if self._trouble else error.str()
        return TopicUnavailable(f"{self._where}: {doing}: {reason}")

    def close(self) -> None:
        """Close connections."""
        self._consumer.close()
