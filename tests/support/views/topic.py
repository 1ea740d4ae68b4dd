"""The messages of a view on a topic, as a consumer that reads what is committed applies them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tidemill.views.targets.kafka_messages import HEADER, mark_of

_PATIENCE_S = 120.0


@dataclass
class Interval:
    """The messages of a partition up to a resolved ts: key → value, None for a row that goes."""

    resolved_ts: int
    changes: dict[str, dict[str, Any] | None] = field(default_factory=dict)


def intervals(broker: str, topic: str) -> list[list[Interval]]:
    """Return the intervals of each partition, as far as the topic goes now."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker,
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    try:
        partitions = sorted(consumer.list_topics(topic, _PATIENCE_S).topics[topic].partitions)
        return [_of_partition(consumer, topic, partition) for partition in partitions]
    finally:
        consumer.close()


def _of_partition(consumer: Consumer, topic: str, partition: int) -> list[Interval]:
    consumer.assign([TopicPartition(topic, partition, 0)])
    found, changes = [], {}
    while True:
        message = consumer.poll(_PATIENCE_S)
        assert message is not None, f"{topic}/{partition} was not read to its end"
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            assert not changes, "rows without a resolved ts behind them"
            return found
        key, value = message.key(), message.value()
        ts = int(dict(message.headers())[HEADER])
        mark = mark_of(key, value)
        if mark is not None:
            assert mark[1] == ts
            found.append(Interval(ts, changes))
            changes = {}
        else:
            row = None if value is None else json.loads(value)
            assert row is None or row.pop("_resolved_ts") == ts
            changes[key.decode()] = row


def states(broker: str, topic: str) -> list[tuple[int, list[dict[str, Any]]]]:
    """Return the view at each resolved ts: the ts, and the rows that a consumer has then."""
    partitions = intervals(broker, topic)
    told = [[one.resolved_ts for one in partition] for partition in partitions]
    assert all(one == told[0] for one in told), "each partition says every resolved ts"
    assert len(told[0]) == len(set(told[0])), "no interval came twice"
    rows: dict[str, dict[str, Any]] = {}
    found = []
    for number, ts in enumerate(told[0]):
        for partition in partitions:
            for key, row in partition[number].changes.items():
                if row is None:
                    del rows[key]  # only a row that is there goes
                else:
                    rows[key] = row
        found.append((ts, [*rows.values()]))
    return found
