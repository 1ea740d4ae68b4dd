"""Reads topics up to their present ends, and checks them. IO: Kafka, and the storage of claim checks."""

from __future__ import annotations

from collections.abc import Callable

from tidemill.consumer.kafka import KafkaTopics
from tidemill.consumer.reading import reader
from tidemill.consumer.to_end import read_to_end
from tidemill.consumer.upstream import Upstream
from tidemill.errors import MalformedMessage, TopicError
from tidemill.protocols.open.codes import VERSION
from tidemill.verify.guarantees import Checker

_OPEN_VERSION = VERSION.to_bytes(8, "big")


def check_topics(upstream: Upstream, fetch: Callable[[str], bytes] | None = None, *, homes: bool = True) -> Checker:
    """Check everything that is in the topics now. Raises TopicError, TopicUnavailable, and MalformedMessage naming the message."""
    topics = KafkaTopics(upstream)
    try:
        sources = topics.discover().partitions
        if not sources:
            raise TopicError(f"no such topic: {', '.join(upstream.topics)}")
        bounds = {source: topics.bounds(source) for source in sources}
        checker = Checker(sources, homes=homes, ddls_everywhere=False)
        read = reader(upstream.protocol, fetch)
        for record in read_to_end(topics, bounds):
            if (record.key or b"").startswith(_OPEN_VERSION):
                checker.ddls_everywhere = True
            try:
                checker.take(record.topic, record.partition, record.offset, read(record.key, record.value))
            except MalformedMessage as error:
                raise MalformedMessage(f"{record.topic}[{record.partition}] at offset {record.offset}: {error.message}") from error
    finally:
        topics.close()
    checker.finish()
    return checker
