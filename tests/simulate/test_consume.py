"""`tidemill consume` into an SQLite file, two to four of them, that freeze, die and meet faults at any statement."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.simulate.actors import Actor
from tests.support.simulate.consumers import FileReader, Files, MemoryTopics, Rows, Upstream, consume, sent
from tests.support.simulate.drivers import History
from tests.support.simulate.histories import DATABASE_BEFORE, DATABASE_STEPS
from tests.support.simulate.trials import Schedules, seeds
from tidemill.consumer import run
from tidemill.consumer.tables.sqlite import SqliteTables

FILE = "tables.db"
FILES = Files()


def gate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sqlite3, "connect", FILES.connect)
    patch.setattr(run, "RETRY_S", (0.0001,))


@pytest.fixture(scope="module")
def schedules(tmp_path_factory: pytest.TempPathFactory) -> Schedules[Rows]:
    history = History.of(tmp_path_factory.mktemp("log"), DATABASE_BEFORE, DATABASE_STEPS)
    topic, upstream = sent(history), Upstream(history)

    def body(folder: Path) -> Callable[[Actor], None]:
        def consumer(actor: Actor) -> None:
            try:
                consume(MemoryTopics(topic), SqliteTables(folder / FILE))
            finally:
                FILES.close(actor)

        return consumer

    with pytest.MonkeyPatch.context() as patch:
        gate(patch)
        made = Schedules(tmp_path_factory.mktemp("runs"), body, lambda folder, _: FileReader(folder / FILE, upstream))
    assert sum(map(len, made.truth.values())) >= 9
    return made


@pytest.mark.parametrize("seed", seeds(16, 40))
def test_a_schedule(seed: int, schedules: Schedules[Rows], monkeypatch: pytest.MonkeyPatch) -> None:
    gate(monkeypatch)
    schedules.run(seed)
