"""A Kafka consumer of Open Protocol topics, written by TiCDC or by Tidemill: prints rows in commit order, each once.

    python examples/open_protocol_consumer.py BROKER:9092 TOPIC

What the protocol promises, and what is done about it here:

- Messages may come again (at least once): a row at or below what was handed over already is dropped, and of equal events one is kept.
- Rows of a table come in commit order within a partition only: they wait until every partition has a resolved ts at or past them.
- A DDL comes on every partition: it is handed over once, between the rows before it and those after it.

It starts at the beginning of the topic and keeps nothing; a real consumer commits its offsets after what it has handed over is durable,
and then only those below the first event that still waits.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tidemill.protocols.open import DdlMessage, Event, ResolvedMessage, RowEvent, decode


class Orderer:
    """Events of several partitions → those that are complete, in commit order, each once."""

    def __init__(self, partitions: list[int]) -> None:
        self._resolved = dict.fromkeys(partitions, 0)
        self._waiting: dict[Event, None] = {}  # a set that keeps its order
        self._done = 0

    def add(self, partition: int, event: Event) -> list[Event]:
        """Take an event; returns what can be handed over now."""
        if not isinstance(event, ResolvedMessage):
            if event.ts > self._done:
                self._waiting.setdefault(event)
            return []
        self._resolved[partition] = max(self._resolved[partition], event.ts)
        complete = min(self._resolved.values())
        if complete <= self._done:
            return []
        self._done = complete
        # A DDL at ts T stands behind the rows at T.
        ready = sorted((e for e in self._waiting if e.ts <= complete), key=lambda e: (e.ts, isinstance(e, DdlMessage)))
        self._waiting = {e: None for e in self._waiting if e.ts > complete}
        return ready


def consume(broker: str, topic: str, *, until: int | None = None) -> Iterator[Event]:
    """Rows and DDLs of a topic from its beginning on, without an end; with `until`, up to the first resolved ts at or past it."""
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "open-protocol-example", "enable.auto.commit": False})
    try:
        partitions = sorted(consumer.list_topics(topic, 10).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        orderer, resolved = Orderer(partitions), dict.fromkeys(partitions, 0)
        while until is None or min(resolved.values()) < until:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            for event in decode(message.key(), message.value()):
                yield from orderer.add(message.partition(), event)
                if isinstance(event, ResolvedMessage):
                    resolved[message.partition()] = max(resolved[message.partition()], event.ts)
    finally:
        consumer.close()


def line(event: Event) -> str:
    """An event as a line of text."""
    if isinstance(event, RowEvent):
        columns = {c.name: c.value for c in event.after or event.before}
        return f"{event.ts} {event.kind.value} {event.schema}.{event.table} {columns}"
    if isinstance(event, DdlMessage):
        return f"{event.ts} ddl {event.query}"
    return f"{event.ts} resolved"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("broker", metavar="BROKER:PORT")
    parser.add_argument("topic")
    parser.add_argument("--until", type=int, metavar="TS", help="end when all partitions are resolved up to this ts")
    args = parser.parse_args()
    for event in consume(args.broker, args.topic, until=args.until):
        print(line(event), flush=True)


if __name__ == "__main__":
    main()
