"""The loop: sides that are away for a while, resumed offsets, and a switch of protocols on the way."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from random import Random

import pytest

from tests.support.consumer.streams import Feed, row
from tests.support.golden.ticdc_topics import sent
from tidemill.consumer.kafka import Found, KafkaTopics, Record
from tidemill.consumer.order.ordering import Ordering, Transaction
from tidemill.consumer.order.pending import Pending
from tidemill.consumer.order.progress import Progress, TopicPartition
from tidemill.consumer.order.spill import TemporaryFiles
from tidemill.consumer.reading import reader
from tidemill.consumer.run import Consumer, Options
from tidemill.consumer.tables.sqlite import MEMORY, SqliteTables
from tidemill.consumer.targets import open_target
from tidemill.demo.compare import rows_of
from tidemill.demo.delivered import from_jsonl
from tidemill.errors import FeedMismatch, SinkUnavailable, TopicUnavailable
from tidemill.protocols.open import decode, resolved_message
from tidemill.protocols.open.events import DdlMessage, Event, ResolvedMessage, RowEvent


class MadeUpTopics(KafkaTopics):
    """Messages of a `Feed`: the value is the index of the event. Discovery fails now and then."""

    def __init__(self, feed: Feed, random: Random, cluster: str = "one") -> None:
        self.feed, self.random, self.cluster = feed, random, cluster
        self.at: dict[TopicPartition, int] = {}
        self.committed = Progress()

    def discover(self) -> Found:
        if self.random.random() < 0.1:
            raise TopicUnavailable("no broker answers")
        return Found(self.cluster, sorted(self.feed.sent))

    def bounds(self, source: TopicPartition) -> tuple[int, int]:
        return 0, len(self.feed.sent[source])

    def follow(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.at |= offsets

    def forget(self, sources: Iterable[TopicPartition]) -> None:
        for source in sources:
            del self.at[source]

    def poll(self, most: int, timeout_s: float) -> list[Record]:
        left = [source for source, at in self.at.items() if at < len(self.feed.sent[source])]
        if not left:
            return []
        source = self.random.choice(left)
        offset = self.at[source]
        self.at[source] += 1
        return [Record(*source, offset, None, b"")]

    @property
    def trouble(self) -> str:
        return ""

    def commit(self, done: Progress) -> None:
        self.committed = done

    def event(self, topic: str, partition: int, offset: int) -> list[Event]:
        return [self.feed.sent[topic, partition][offset]]


class Shaky(SqliteTables):
    """Is away at any moment, and in any case when the first commit comes."""

    random: Random
    has_failed = False

    def _perhaps(self, surely: bool = False) -> None:
        if surely or self.random.random() < 0.05:
            self.has_failed = True
            raise SinkUnavailable("the file is locked")

    def rows(self, events: Sequence[RowEvent]) -> None:
        self._perhaps()
        super().rows(events)

    def commit(self, progress: Progress) -> None:
        self._perhaps(surely=not self.has_failed)
        super().commit(progress)


@pytest.mark.parametrize("seed", range(4))
def test_sides_that_are_away_again_and_again(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.consumer.run.RETRY_S", (0.0,))
    monkeypatch.setattr("tidemill.consumer.run.COMMIT_ROWS", 5)
    random = Random(seed)
    feed = Feed(random, 3)
    feed.make(60)
    feed.send()
    topics = MadeUpTopics(feed, random)
    target = Shaky(tmp_path / "x.db")
    target.random = random
    monkeypatch.setattr(
        "tidemill.consumer.run.read_at", lambda read, topic, partition, offset, key, value: topics.event(topic, partition, offset)
    )
    consumer = Consumer(topics, target, reader(), Options(flush_s=0.0, stop_at_end=True, quota=20_000))
    consumer.run(threading.Event())
    assert consumer.counters.restarts > 0
    found = {(name, row["id"]): row["v"] for name in ("t", "u") for row in rows_of(target, ("d", name))}
    assert found == feed.final
    ddls = [step for step in feed.steps if isinstance(step, DdlMessage)]
    stored = target.connection.execute("SELECT ts, query FROM _tidemill_ddls ORDER BY rowid").fetchall()
    assert stored == [(ddl.ts, ddl.query) for ddl in ddls]
    assert target.progress() == topics.committed
    with pytest.raises(FeedMismatch, match="filled from Kafka cluster one, this is two"):
        Consumer(MadeUpTopics(feed, Random(1), "two"), target, reader(), Options()).run(threading.Event())


def tables_of(messages: Iterable[tuple[TopicPartition, bytes | None, bytes | None]]) -> SqliteTables:
    """Tables made of messages, by a consumer's steps."""
    ordering = Ordering(Pending(1 << 20, TemporaryFiles()))
    read = reader()
    for offset, (source, key, value) in enumerate(messages):
        if source not in ordering.partitions:
            ordering.join(source)
        ordering.take(source, offset, read(key, value), len(value or b""))
    tables = SqliteTables(MEMORY)
    upto = ordering.ready()
    assert upto is not None
    for step in ordering.drain(upto):
        tables.rows(step.rows) if isinstance(step, Transaction) else tables.ddl(step)
    tables.commit(ordering.flushed(upto))
    return tables


def test_open_protocol_through_canal_json_into_tables(tmp_path: Path) -> None:
    """Its DDLs stand in partition 0 only, its keys are primary keys only; the tables are the same."""
    wanted = {
        "ints", "floats", "decs", "strs", "charsets", "lobs", "enums", "bits", "vecs", "uk_nn", "prange", "pexch", "shapes", "pk_comp",
        "cols", "mcols",
    }  # fmt: skip
    messages = [m for m in sent() if m.table in wanted]
    file = tmp_path / "canal.jsonl"
    target = open_target(f"messages://{file}?protocol=canal-json&enable-tidb-extension=true&partition-num=3")
    for (_, is_ddl), group in groupby(messages, key=lambda m: (m.ts, m.is_ddl)):
        events = [event for m in group for event in decode(m.key, m.value)]
        if is_ddl:
            for event in events:
                target.ddl(event)  # type: ignore[arg-type]
        else:
            target.rows(events)  # type: ignore[arg-type]
    target.commit(Progress(messages[-1].ts))
    target.close()
    last = resolved_message(messages[-1].ts)
    straight = tables_of([*((("open", 0), m.key, m.value) for m in messages), (("open", 0), *last)])
    around = tables_of(((m.topic, m.partition), m.key, m.value) for m in from_jsonl(file))
    names = {table.name for table in straight.catalog}
    assert names == {table.name for table in around.catalog}
    assert len(names) >= 12
    for name in names:
        one, other = (sorted(map(repr, rows_of(tables, name))) for tables in (straight, around))
        assert one == other, name


@pytest.mark.parametrize("ended", [False, True])
def test_a_topic_that_fell_silent_is_named_and_may_be_called_ended(ended: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read to its end before anything relies on that: here its row comes last."""
    random = Random(1)
    random.random = lambda: 1.0  # type: ignore[method-assign]
    feed = Feed(random, 1)
    feed.sent = {("a", 0): [row(6, 2, None, 2), ResolvedMessage(9)], ("quiet", 0): [row(5, 1, None, 1, "u")]}
    topics = MadeUpTopics(feed, random)
    monkeypatch.setattr(random, "choice", min)
    monkeypatch.setattr(
        "tidemill.consumer.run.read_at", lambda read, topic, partition, offset, key, value: topics.event(topic, partition, offset)
    )
    target = SqliteTables(MEMORY)
    options = Options(flush_s=0.0, stop_at_end=True, ended_topics=frozenset({"quiet"} if ended else ()))
    consumer = Consumer(topics, target, reader(), options)
    consumer.run(threading.Event())
    status = consumer.status()
    assert (status["rows"], status["flushed_ts"]) == ((2, 9) if ended else (0, 0))
    assert (status["held_by"], status["ended"]) == ((["a[0]"], ["quiet[0]"]) if ended else (["quiet[0]"], []))
    assert ended or "quiet[0] has sent no resolved ts at all; a topic that nobody writes to any more" in consumer.held()
