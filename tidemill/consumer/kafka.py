"""Topics of a Kafka cluster, read from given offsets. IO happens here; what is read is kept by nobody here."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tidemill.consumer import progress
from tidemill.consumer.upstream import Upstream
from tidemill.errors import TopicError, TopicUnavailable
from tidemill.sinks.kafka.options import METADATA_TIMEOUT, client_config

log = logging.getLogger(__name__)

_DEFAULT_GROUP = "tidemill-consume"
_QUEUED_KBYTES = 64 * 1024  # read ahead, over all partitions
_FRAMING = 1 << 20
_DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
}
_GONE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}

# What matters of the client's log comes through its error callback as well.
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
    """The cluster's id, all partitions that are to be read, and the topics and patterns that nothing is there of."""

    cluster: str
    partitions: list[progress.TopicPartition]
    absent: tuple[str, ...] = ()


def no_such_topic(names: Iterable[str]) -> TopicError:
    """What is to be read to its end has to be there."""
    return TopicError(
        f"no such topic: {', '.join(names)}",
        hint="Look at its spelling and the brokers' address; without --stop-at-end it is waited for.",
    )


class KafkaTopics:
    """A reader with offsets of its own. Raises TopicError (give up) or TopicUnavailable (try again)."""

    def __init__(self, upstream: Upstream, group: str = "", *, reads: bool = True) -> None:
        """`reads`: False where somebody else fetches the messages, and this only looks at topics and offsets."""
        self._upstream, self._group, self._reads = upstream, group, reads
        self._where = f"Kafka {','.join(upstream.kafka.hosts)}"
        self._trouble = ""
        self._denied = False
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
        self._trouble = error.str()
        self._denied = self._denied or error.code() in _DENIED

    def discover(self) -> Found:
        """What there is now. A topic that was named and is not there is waited for: its writer makes it."""
        try:
            metadata = self._consumer.list_topics(timeout=METADATA_TIMEOUT)
        except KafkaException as error:
            raise self._told(error.args[0], "listing topics") from None
        found: list[progress.TopicPartition] = []
        for name, topic in metadata.topics.items():
            if self._upstream.wants(name):
                if topic.error is not None:
                    raise self._told(topic.error, f"topic {name}")
                numbers = sorted(topic.partitions)
                found += [(name, number) for number in numbers[: self._upstream.partition_num]]
        return Found(str(metadata.cluster_id or ""), sorted(found), self._upstream.absent({name for name, _ in found}))

    def require(self) -> None:
        """Raises TopicError for a topic that is not there; brokers that are away are for later."""
        try:
            absent = self.discover().absent
        except TopicUnavailable:
            return
        if absent:
            raise no_such_topic(absent)

    def bounds(self, source: progress.TopicPartition) -> tuple[int, int]:
        """The first offset that is kept, and the one behind the last."""
        try:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(*source), timeout=METADATA_TIMEOUT)
        except KafkaException as error:
            raise self._told(error.args[0], f"offsets of {source[0]}[{source[1]}]") from None
        return low, high

    def follow(self, offsets: Mapping[progress.TopicPartition, int]) -> None:
        """Read more partitions, from these offsets on."""
        if offsets and self._reads:
            self._consumer.incremental_assign([TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()])

    def forget(self, sources: Iterable[progress.TopicPartition]) -> None:
        """Read partitions no more."""
        self._consumer.incremental_unassign([TopicPartition(*source) for source in sources])

    def poll(self, most: int, timeout_s: float) -> list[Record]:
        """Up to `most` messages; none after the timeout."""
        found: list[Record] = []
        for message in self._consumer.consume(most, timeout_s):
            error = message.error()
            if error is not None:
                self._refuse(error, message)
                continue
            self._trouble = ""
            found.append(Record(message.topic() or "", message.partition() or 0, message.offset() or 0, message.key(), message.value()))
        if not found and self._denied:
            raise TopicError(f"{self._where} refuses: {self._trouble}")
        return found

    @property
    def trouble(self) -> str:
        """What the client said last of its connections; empty while messages come."""
        return self._trouble

    def _refuse(self, error: Any, message: Any) -> None:
        """Errors that pass by themselves are the client's business."""
        place = f"{message.topic()}[{message.partition()}]"
        if error.code() in _GONE:
            raise TopicError(
                f"{self._where}: {place}: the messages from offset {message.offset()} on are not there any more: {error.str()}",
                hint="The topic's retention took them, or it was made anew. Begin with a new sink and a changefeed from an earlier ts.",
            )
        if error.code() in _DENIED or error.fatal():
            raise TopicError(f"{self._where}: {place}: {error.str()}")
        self._trouble = error.str()

    def commit(self, done: progress.Progress) -> None:
        """Tell the group's offsets, for those who watch lag. They decide nothing here."""
        if self._group:
            listed = [TopicPartition(topic, number, p.offset) for (topic, number), p in done.partitions.items()]
            try:
                self._consumer.commit(offsets=listed, asynchronous=True)
            except KafkaException as error:
                log.warning("offsets of group %s were not told: %s", self._group, error.args[0].str())

    def _told(self, error: Any, doing: str) -> TopicError:
        if error.code() in _DENIED or self._denied:
            return TopicError(f"{self._where}: {doing}: {self._trouble or error.str()}")
        reason = f"{error.str()} ({self._trouble})" if self._trouble else error.str()
        return TopicUnavailable(f"{self._where}: {doing}: {reason}")

    def close(self) -> None:
        """Give back connections."""
        self._consumer.close()
