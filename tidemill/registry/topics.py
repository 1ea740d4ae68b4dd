"""The check that a topic holds one table: with TopicNameStrategy a topic's messages have one schema. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tidemill.errors import TopicCollision
from tidemill.protocols.avro.schema import Side, subject
from tidemill.tso import describe

TableName = tuple[str, str]
"""Schema and table."""


def check_topics(ts: int, tables: Iterable[tuple[TableName, str]]) -> None:
    """Check that no two tables delivered past ts share a topic or subject. Raises TopicCollision naming two that do."""
    owners: dict[str, tuple[TableName, str]] = {}
    for name, topic in tables:
        other = owners.setdefault(subject(topic, Side.VALUE), (name, topic))
        if other[0] != name:
            raise _collision(ts, sorted([other, (name, topic)]))


def _collision(ts: int, pair: list[tuple[TableName, str]]) -> TopicCollision:
    (one, topic), (two, other) = pair
    names = f"{'.'.join(one)} and {'.'.join(two)}"
    shared = f"topic {topic}" if topic == other else f"subject {subject(topic, Side.VALUE)}, by the topics {topic} and {other}"
    return TopicCollision(
        f"tables {names}, as they are past {describe(ts)}, would share {shared}: with a schema registry a topic holds one table, "
        "because its messages have one schema",
        hint="Give them topics of their own: sink.dispatchers with a topic that has {schema} and {table}, such as "
        '"tidb_{schema}_{table}", or leave one of them out with filter.rules. A changefeed that exists keeps its settings: '
        f"start another with --start-ts {ts}.",
    )
