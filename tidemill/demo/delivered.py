"""Reads what a sink has received: the messages of each topic and partition, in their order."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tidemill.errors import SinkUnavailable
from tidemill.extras import extra
from tidemill.sinks.files import read_messages

_ANSWER_S = 30.0


class Delivered(NamedTuple):
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None


def from_files(folder: Path) -> Iterator[Delivered]:
    """Read the messages of a file:// sink: FOLDER/topic/partition/batch.

    While the sink writes, it removes files that hold only a resolved event: one that has gone since its folder was listed is passed over.
    """
    for partition in sorted(p for p in folder.glob("*/*") if p.name.isdecimal()):
        for file in sorted(partition.glob("*.messages")):
            try:
                messages = list(read_messages(file))
            except FileNotFoundError:
                continue
            for key, value in messages:
                yield Delivered(partition.parent.name, int(partition.name), key, value)


def from_jsonl(file: Path) -> Iterator[Delivered]:
    """Read the messages of a messages:// sink. An incomplete last line is left out."""
    with file.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                return
            o = json.loads(line)
            yield Delivered(o["topic"], o["partition"], _bytes(o["key"]), _bytes(o["value"]))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def from_kafka(brokers: str, topic: str) -> Iterator[Delivered]:
    """Read a topic from its beginning up to its present ends. Raises SinkUnavailable."""
    with extra("kafka"):
        from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "tidemill-demo", "enable.auto.commit": False})
    try:
        metadata = consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic]
        if metadata.error is not None:
            raise SinkUnavailable(f"topic {topic}: {metadata.error.str()}")
        for partition in sorted(metadata.partitions):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_ANSWER_S)
            consumer.assign([TopicPartition(topic, partition, low)])
            at = low
            while at < high:
                message = consumer.poll(_ANSWER_S)
                error = message.error() if message is not None else None
                if message is None or error is not None:
                    reason = error.str() if error is not None else "nothing came"
                    raise SinkUnavailable(f"reading topic {topic}, partition {partition} at offset {at}: {reason}")
                at = (message.offset() or 0) + 1
                yield Delivered(topic, partition, message.key(), message.value())
    finally:
        consumer.close()
