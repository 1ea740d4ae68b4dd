"""Reads topics up to the ends that they have at the start. IO: Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tidemill.consumer.kafka import KafkaTopics, Record
from tidemill.consumer.order import progress
from tidemill.errors import TopicUnavailable

_AT_ONCE = 1000
_WAIT_S = 1.0
_PATIENCE_S = 60.0


def read_to_end(topics: KafkaTopics, bounds: dict[progress.TopicPartition, tuple[int, int]]) -> Iterator[Record]:
    """Yield the messages of each partition between its bounds (first offset, offset after the last message).

    Raises TopicError, and TopicUnavailable if nothing comes for a minute.
    """
    left = {source: high for source, (low, high) in bounds.items() if high > low}
    topics.follow({source: bounds[source][0] for source in left})
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
            yield record
            if record.offset + 1 >= left[source]:
                del left[source]
                topics.forget([source])
