"""Message files under two to four drivers that freeze, die, lose answers or all power, and see old listings at any effect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.simulate.actors import current_gate
from tests.support.simulate.drivers import History
from tests.support.simulate.files import GatedPartReader
from tests.support.simulate.histories import BEFORE, STEPS
from tests.support.simulate.power import Supplies
from tests.support.simulate.stores import GatedStore
from tests.support.simulate.trials import Trials, seeds
from tidemill.sinks.files import read_messages
from tidemill.sinks.storage.store import LocalStore

SUPPLIES = Supplies()

Message = tuple[bytes | None, bytes | None]
Messages = dict[str, list[Message]]
"""The messages of each partition, in order, without resolved events."""


def is_resolved(key: bytes | None) -> bool:
    return key is not None and b'"t":3' in key


class MessageReader:
    """Nothing that was published goes back, and each message is there once."""

    def __init__(self, folder: Path, truth: Messages | None) -> None:
        self._folder, self._truth = folder / "out", truth
        self._resolved = 0
        self._before: Messages = {}

    def seen(self) -> Messages:
        found: Messages = {}
        for path in sorted(self._folder.glob("*/*/*.messages")):
            place = path.parent.relative_to(self._folder).as_posix()
            found.setdefault(place, []).extend(message for message in read_messages(path) if not is_resolved(message[0]))
        return found

    def forget(self) -> None:
        """Begin again."""
        self._resolved, self._before = 0, {}

    def check(self) -> None:
        note = self._folder / "tidemill.json"
        now = int(json.loads(note.read_bytes())["resolved_ts"]) if note.exists() else 0
        assert now >= self._resolved, f"tidemill.json went back from {self._resolved} to {now}"
        seen = self.seen()
        for place, before in self._before.items():
            assert seen[place][: len(before)] == before, f"what was published of {place} is gone"
        if self._truth is not None:
            for place, messages in seen.items():
                assert messages == self._truth[place][: len(messages)], f"{place} has other messages"
        self._resolved, self._before = now, seen


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials[Messages]:
    history = History.of(tmp_path_factory.mktemp("log"), BEFORE, STEPS)
    with pytest.MonkeyPatch.context() as patch:
        gate(patch)
        made = Trials(history, tmp_path_factory.mktemp("runs"), sink, MessageReader, behind=True, supplies=SUPPLIES)
    assert sum(map(len, made.truth.values())) >= 9
    return made


def sink(folder: Path) -> str:
    return f"file://{folder}/out?protocol=open-protocol&partition-num=2"


def gate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tidemill.sinks.files.LocalStore", gated)
    patch.setattr("tidemill.sinks.files.PartReader", GatedPartReader)
    SUPPLIES.install(patch)


def gated(folder: Path) -> GatedStore:
    return GatedStore(LocalStore(folder), current_gate())


@pytest.mark.parametrize("seed", seeds(16, 40))
def test_a_schedule(seed: int, trials: Trials[Messages], monkeypatch: pytest.MonkeyPatch) -> None:
    gate(monkeypatch)
    trials.run(seed)
