"""The consumer's progress. It is stored with the data, and a restart continues from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemill.errors import MalformedBytes

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """Progress of one partition. `offset` is the first message that may hold something not flushed. Rows of the partition at or below

    `flushed_ts` are flushed. `ended`: all tables of its topic are gone, see `living`.
    """

    offset: int
    flushed_ts: int
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """Everything of the listed partitions at or below `flushed_ts` is in the target. `cluster` is the id of the offsets' Kafka cluster.

    `tables` has the tables of each topic, (schema, table) in lower case.
    """

    flushed_ts: int = 0
    partitions: Mapping[TopicPartition, PartitionProgress] = field(default_factory=dict)
    cluster: str = ""
    tables: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return one line."""
        listed = [[topic, partition, p.offset, p.flushed_ts, p.ended] for (topic, partition), p in sorted(self.partitions.items())]
        tables = {topic: names for topic, names in self.tables.items() if names}
        return json.dumps({"format": 1, "flushed_ts": self.flushed_ts, "cluster": self.cluster, "partitions": listed, "tables": tables})

    @classmethod
    def from_json(cls, text: str) -> Progress:
        """Read the JSON of `to_json`. Raises MalformedBytes."""
        try:
            data = json.loads(text)
            if data["format"] != 1:
                raise ValueError(f"format {data['format']}")
            partitions = {
                (str(t), int(p)): PartitionProgress(int(offset), int(ts), bool(ended)) for t, p, offset, ts, ended in data["partitions"]
            }
            tables = {topic: tuple((str(s), str(t)) for s, t in names) for topic, names in data.get("tables", {}).items()}
            return cls(int(data["flushed_ts"]), partitions, str(data["cluster"]), tables)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MalformedBytes(f"the consumer's progress cannot be read: {error}") from None
