"""Reads topics up to their present ends, and checks them. IO: Kafka, and the storage of claim checks."""

from __future__ import annotations

import time
from collections.abc import Callable

from tidemill.consumer.kafka import KafkaTopics
from tidemill.consumer.reading import reader
from tidemill.consumer.upstream import Upstream
from tidemill.errors import MalformedMessage, TopicError, TopicUnavailable
from tidemill.protocols.open.codes import VERSION
from tidemill.verify.guarantees import Checker

_AT_ONCE = 1000
_WAIT_S = 1.0
_PATIENCE_S = 60.0
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
        left = {source: high for source, (low, high) in bounds.items() if high > low}
        topics.follow({source: bounds[source][0] for source in left})
        _read(topics, upstream, fetch, checker, left)
    finally:
        topics.close()
    checker.finish()
    return checker


def _read(
    topics: KafkaTopics, upstream: Upstream, fetch: Callable[[str], bytes] | None, checker: Checker, left: dict[tuple[str, int], int]
) -> None:
    """Read the messages. `left`: the ends of the partitions that are not read yet."""
    read = reader(upstream.protocol, fetch)
    waiting_since = time.monotonic()
    while left:
        records = topics.poll(_AT_ONCE, _WAIT_S)
        if records:
            waiting_since = time.monotonic()
        elif time.monotonic() - waiting_since > _PATIENCE_S:
            raise TopicUnavailable(
                f"no messages came from {', '.join(f'{t}[{p}]' for t, p in left)}: {topics.trouble or 'no reason given'}"
            )
        for record in records:
            source = record.topic, record.partition
            if source not in left:
                continue
            if (record.key or b"").startswith(_OPEN_VERSION):
                checker.ddls_everywhere = True
            try:
                checker.take(*source, record.offset, read(record.key, record.value))
            except MalformedMessage as error:
                raise MalformedMessage(f"{record.topic}[{record.partition}] at offset {record.offset}: {error.message}") from error
            if record.offset + 1 >= left[source]:
                del left[source]
                topics.forget([source])
