"""Topics of a Kafka cluster, read from given offsets. IO happens here; what is read is kept by nobody here."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tidemill.consumer.order import progress
from tidemill.consumer.upstream import Upstream
from tidemill.errors import TopicError, TopicUnavailable
from tidemill.sinks.kafka.denials import Denials
from tidemill.sinks.kafka.options import METADATA_TIMEOUT, client_config

T = TypeVar("T")

log = logging.getLogger(__name__)

_DEFAULT_GROUP = "tidemill-consume"
_QUEUED_KBYTES = 64 * 1024  # read ahead, over all partitions
_FRAMING = 1 << 20
ASK_S = 1.0  # how long one question waits, of METADATA_TIMEOUT in all
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
                return  # says less than what it follows from
        self._trouble = error.str()

    def _asked(self, doing: str, ask: Callable[[float], T]) -> T:
        """An answer of the brokers. Asked for in pieces, because the client tells of its connections only in between: brokers that are away
        need not be waited for."""
        deadline = time.monotonic() + METADATA_TIMEOUT
        self._all_down = False
        while True:
            left = deadline - time.monotonic()
            try:
                answer = ask(max(0.1, min(ASK_S, left)))
            except KafkaException as error:
                if not self._reading:
                    self._consumer.poll(0)  # there is nothing to be read: it serves the error callback
                if error.args[0].code() not in _UNANSWERED or self._all_down or self._denials.meant or left <= ASK_S:
                    raise self._told(error.args[0], doing) from None
            else:
                self._denials.succeeded()
                return answer

    def discover(self) -> Found:
        """What there is now. A topic that was named and is not there is waited for: its writer makes it."""
        metadata = self._asked("listing topics", lambda timeout: self._consumer.list_topics(timeout=timeout))
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
        """Read partitions no more."""
        if not self._reads:
            return
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
            self._denials.succeeded()
            found.append(Record(message.topic() or "", message.partition() or 0, message.offset() or 0, message.key(), message.value()))
        if not found and self._denials.meant:
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
                hint="The topic's retention took them, or it was made again. Begin with a new sink and a changefeed from an earlier ts.",
            )
        if error.code() in _DENIED:
            self._denials.denied(time.monotonic())
        if error.fatal() or (error.code() in _DENIED and self._denials.meant):
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
        if error.code() in _DENIED:
            self._denials.denied(time.monotonic())
        if self._denials.meant:
            return TopicError(f"{self._where}: {doing}: {self._trouble or error.str()}")
        reason = f"{error.str()} ({self._trouble})" if self._trouble else error.str()
        return TopicUnavailable(f"{self._where}: {doing}: {reason}")

    def close(self) -> None:
        """Give back connections."""
        self._consumer.close()
