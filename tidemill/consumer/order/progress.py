"""The consumer's progress. It is stored with the data, and a restart continues from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemill import statefile
from tidemill.errors import MalformedBytes
from tidemill.statefile import Kind
from tidemill.tso import MAX_TS

TopicPartition = tuple[str, int]

STATE = Kind(MalformedBytes, "Restore the consumer's target and its state together from a copy, or begin with a new one.")


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
        found = statefile.read(text, "the consumer's progress", STATE)
        if (form := found.integer("format")) != 1:
            raise found.broken(f"it has format {form}; this Tidemill reads format 1")
        partitions = dict(_partition(entry, found) for entry in found.items("partitions"))
        named = found.part("tables") if "tables" in found else None
        tables = {topic: tuple(named.text_pairs(topic)) for topic in named.others()} if named is not None else {}
        return cls(found.integer("flushed_ts"), partitions, found.text("cluster"), tables)


def _partition(entry: object, found: statefile.Fields) -> tuple[TopicPartition, PartitionProgress]:
    match entry:
        case [str(topic), int(partition), int(offset), int(ts), bool(ended)] if (
            0 <= min(partition, offset, ts) <= max(offset, ts) <= MAX_TS
        ):
            return (topic, partition), PartitionProgress(offset, ts, ended)
    raise found.broken("an entry of partitions is not a topic, a partition, an offset, a ts, and whether it has ended")
