"""A topic of a real broker under two to four drivers that freeze, die and lose answers at any effect. Who consumes it has the upstream's
tables, whatever drivers of the past still send."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.servers.kafka import new_topic_name
from tests.support.simulate.actors import current_gate
from tests.support.simulate.consumers import FileReader, Upstream, consume
from tests.support.simulate.databases import Rows
from tests.support.simulate.drivers import History
from tests.support.simulate.histories import BEFORE, STEPS
from tests.support.simulate.lakes import nothing
from tests.support.simulate.trials import Trials, seeds
from tidemill.consumer.kafka import KafkaTopics
from tidemill.consumer.tables.sqlite import SqliteTables
from tidemill.consumer.upstream import upstream
from tidemill.playground.programs.kafka_broker import KafkaBroker
from tidemill.sinks.base import BatchContext
from tidemill.sinks.base import Target as Partition
from tidemill.sinks.kafka.driver import KafkaDriverSink

pytestmark = [pytest.mark.slow, pytest.mark.kafka]
DRIVER = "tidemill.sinks.kafka.driver.KafkaDriverSink"


class GatedDriver(KafkaDriverSink):
    """Stops before each call. Inside there are checks of the fence, which are effects of their own."""

    def ensure_topics(self, topics: set[str]) -> dict[str, int]:
        current_gate()("ensure topics", nothing)
        return super().ensure_topics(topics)

    def begin_batch(self, ctx: BatchContext) -> None:
        current_gate()("begin a batch", nothing)
        super().begin_batch(ctx)

    def send(self, topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[int]) -> None:
        current_gate()("send a DDL", nothing)
        super().send(topic, key, value, partitions)

    def send_resolved(self, targets: Sequence[Partition], key: bytes | None, value: bytes | None) -> None:
        current_gate()("send a resolved ts", nothing)
        super().send_resolved(targets, key, value)

    def finish_batch(self, ctx: BatchContext) -> None:
        current_gate()("await acknowledgements", nothing)
        super().finish_batch(ctx)


class TopicReader:
    """Consumes the topic from its begin, at the end of a run."""

    def __init__(self, uri: str, folder: Path, tables: Upstream) -> None:
        self._uri, self._folder, self._tables = uri, folder, tables
        self._numbers = itertools.count()

    def check(self) -> None:
        """Nothing: what is read at the end has the order of all that was sent."""

    def seen(self) -> Rows:
        path = self._folder / f"seen{next(self._numbers)}.db"
        topics = KafkaTopics(upstream(self._uri.partition("?")[0], []))
        try:
            consume(topics, SqliteTables(path))
        finally:
            topics.close()
        read = FileReader(path, self._tables)
        read.check()
        return read.seen()


@pytest.fixture(scope="module")
def trials(kafka_broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Trials[Rows]:
    history = History.of(tmp_path_factory.mktemp("log"), (), (BEFORE, *STEPS))
    tables = Upstream(history)
    uris: dict[Path, str] = {}

    def sink(folder: Path) -> str:
        topic = new_topic_name("simulated")
        uris[folder] = f"kafka://{kafka_broker.address}/{topic}?protocol=open-protocol&partition-num=2&replication-factor=1"
        return uris[folder]

    reader: Callable[[Path, Rows | None], TopicReader] = lambda folder, _: TopicReader(uris[folder], folder, tables)  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DRIVER, GatedDriver)
        made = Trials(history, tmp_path_factory.mktemp("runs"), sink, reader)
    assert made.truth == {name: rows for name, rows in tables.at(history.cuts[-1]).items() if name in made.truth}
    return made


@pytest.mark.parametrize("seed", seeds(2, 4))
def test_a_schedule(seed: int, trials: Trials[Rows], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DRIVER, GatedDriver)
    trials.run(seed)
