"""An entry store (canal://) in a bucket under two to four drivers that freeze, die and lose answers at any request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from tests.support.changelog.memory_storage import Bucket, MemoryStorage
from tests.support.simulate.actors import current_gate
from tests.support.simulate.drivers import History
from tests.support.simulate.histories import BEFORE, STEPS
from tests.support.simulate.trials import Trials, seeds
from tidemill.changelog.storage.base import Draft, Token
from tidemill.config.uri import SinkUri
from tidemill.errors import LogUnavailable, SinkUnavailable
from tidemill.sinks.canal.place import options_of
from tidemill.sinks.canal.store.names import STORE
from tidemill.sinks.canal.store.position import Position, StoredEntry
from tidemill.sinks.canal.store.reader import EntryStoreReader

T = TypeVar("T")
Entries = list[tuple[Position, bytes]]
BUCKETS: dict[str, Bucket] = defaultdict(Bucket)
"""By the store's place."""


class GatedStorage(MemoryStorage):
    """A bucket each of whose requests is an effect of the actor that opens it."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket)
        self._actor_gate = current_gate()

    def _gated(self, request: str, act: Callable[[], T]) -> T:
        try:
            return self._actor_gate(request, act)
        except SinkUnavailable as error:
            raise LogUnavailable(str(error)) from error

    def names(self, folder: str) -> list[str]:
        return self._gated(f"list {folder}", lambda: MemoryStorage.names(self, folder))

    def subfolders(self, folder: str) -> list[str]:
        return self._gated(f"list {folder}", lambda: MemoryStorage.subfolders(self, folder))

    def read(self, name: str) -> bytes | None:
        return self._gated(f"read {name}", lambda: MemoryStorage.read(self, name))

    def versioned(self, name: str) -> tuple[bytes, Token] | None:
        return self._gated(f"read {name}", lambda: MemoryStorage.versioned(self, name))

    def swap(self, name: str, expected: Token | None, data: bytes) -> Token | None:
        return self._gated(f"swap {name}", lambda: MemoryStorage.swap(self, name, expected, data))

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        self._gated(f"put {name}", lambda: MemoryStorage.replace(self, name, data, durable=durable))

    def delete(self, name: str) -> None:
        self._gated(f"delete {name}", lambda: MemoryStorage.delete(self, name))

    def draft(self, folder: str) -> Draft:
        made = super().draft(folder)
        publish = made.publish
        made.publish = lambda name: self._gated(f"create {folder}/{name}", lambda: publish(name))  # type: ignore[method-assign]
        return made


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
        made = Trials(history, tmp_path_factory.mktemp("runs"), lambda folder: f"canal://{folder}/store", EntryReader)
    assert len(made.truth) >= 9
    return made


@pytest.mark.parametrize("seed", seeds(26))
def test_a_schedule(seed: int, trials: Trials[Entries], monkeypatch: pytest.MonkeyPatch) -> None:
    gate(monkeypatch)
    trials.run(seed)
