"""An entry store (canal://) in a bucket under two to four drivers that freeze, die, lose answers and see old listings at any request."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.changelog.memory_storage import Bucket, MemoryStorage
from tests.support.simulate.drivers import History
from tests.support.simulate.gated_storage import GatedStorage
from tests.support.simulate.histories import BEFORE, STEPS
from tests.support.simulate.trials import Trials, seeds
from tidemill.config.uri import SinkUri
from tidemill.sinks.canal.place import options_of
from tidemill.sinks.canal.store.names import STORE
from tidemill.sinks.canal.store.position import Position, StoredEntry
from tidemill.sinks.canal.store.reader import EntryStoreReader

Entries = list[tuple[Position, bytes]]
BUCKETS: dict[str, Bucket] = defaultdict(Bucket)
"""By the store's place."""


class EntryReader:
    """The head never goes back, and what lies at or below it is there once, in order; for a client that stays and for a new one."""

    def __init__(self, folder: Path, truth: Entries | None) -> None:
        self._bucket, self._truth = BUCKETS[str(folder / "store")], truth
        self._client: EntryStoreReader | None = None
        self._head = 0
        self._read: list[StoredEntry] = []

    def seen(self) -> Entries:
        return _entries(_behind(EntryStoreReader(MemoryStorage(self._bucket)), []))

    def check(self) -> None:
        if STORE not in self._bucket.content:
            return
        if self._client is None:
            self._client = EntryStoreReader(MemoryStorage(self._bucket))
        self._client.refresh()
        head = self._client.head()
        assert head >= self._head, f"the head went back from {self._head} to {head}"
        self._head = head
        self._read += _behind(self._client, self._read)
        seen = self.seen()
        assert _entries(self._read) == seen, "a client that stays reads other entries than a new one"
        if self._truth is not None:
            assert seen == [entry for entry in self._truth if entry[0].commit_ts <= head], f"other entries up to {head}"


def _behind(reader: EntryStoreReader, known: list[StoredEntry]) -> list[StoredEntry]:
    return reader.read(known[-1].position if known else Position(reader.begins(), 1 << 40), 1000, 1 << 20)


def _entries(stored: list[StoredEntry]) -> Entries:
    return [(entry.position, bytes(entry.data)) for entry in stored]


def gate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tidemill.sinks.canal.driver.storage_of", lambda uri: GatedStorage(_bucket(uri)))
    patch.setattr("tidemill.sinks.canal.task.storage_of", lambda uri: MemoryStorage(_bucket(uri)))


def _bucket(uri: SinkUri) -> Bucket:
    return BUCKETS[options_of(uri).store]


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials[Entries]:
    history = History.of(tmp_path_factory.mktemp("log"), BEFORE, STEPS)
    with pytest.MonkeyPatch.context() as patch:
        gate(patch)
        made = Trials(history, tmp_path_factory.mktemp("runs"), lambda folder: f"canal://{folder}/store", EntryReader, behind=True)
    assert len(made.truth) >= 9
    return made


@pytest.mark.parametrize("seed", seeds(12, 26))
def test_a_schedule(seed: int, trials: Trials[Entries], monkeypatch: pytest.MonkeyPatch) -> None:
    gate(monkeypatch)
    trials.run(seed)
