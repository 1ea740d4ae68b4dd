"""The storage sink under two to four drivers that freeze, die and lose answers at any effect."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.simulate.actors import current_gate
from tests.support.simulate.drivers import History
from tests.support.simulate.histories import BEFORE, STEPS
from tests.support.simulate.stores import GatedStore
from tests.support.simulate.trials import Trials, seeds
from tidemill.config.uri import SinkUri
from tidemill.sinks.storage.open import store_of

TOML = "[sink.csv]\ninclude-commit-ts = true\n"
_DATA = re.compile(r"(.*)/([0-9]+)/CDC([0-9]+)\.csv")

Lines = dict[str, list[bytes]]
"""The lines that readers see, in order, by table."""


def published(folder: Path) -> Lines:
    files = []
    for path in folder.rglob("*.csv"):
        match = _DATA.fullmatch(path.relative_to(folder).as_posix())
        index = path.parent / "meta" / "CDC.index"
        if match is not None and index.exists() and path.name <= index.read_text().strip():
            files.append((match[1], int(match[2]), int(match[3]), path.read_bytes()))
    found: Lines = {}
    for table, _, _, data in sorted(files):
        found.setdefault(table, []).extend(data.splitlines())
    return found


def at_or_below(lines: list[bytes], ts: int) -> list[bytes]:
    return [line for line in lines if int(line.split(b",")[3]) <= ts]


class FileReader:
    """Nothing that was published goes back, and at the checkpoint everything is there once."""

    def __init__(self, folder: Path, truth: Lines | None) -> None:
        self._folder, self._truth = folder / "out", truth or {}
        self._checkpoint = 0
        self._before: Lines = {}

    def seen(self) -> Lines:
        return published(self._folder)

    def check(self) -> None:
        metadata = self._folder / "metadata"
        now = int(json.loads(metadata.read_bytes())["checkpoint-ts"]) if metadata.exists() else 0
        lines = self.seen()
        assert now >= self._checkpoint, f"metadata went back from {self._checkpoint} to {now}"
        for table, before in self._before.items():
            assert lines.get(table, [])[: len(before)] == before, f"what was published of {table} is gone"
        for table, truth in self._truth.items():
            assert at_or_below(lines.get(table, []), now) == at_or_below(truth, now), f"{table} at {now}"
        self._checkpoint, self._before = now, lines


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials[Lines]:
    history = History.of(tmp_path_factory.mktemp("log"), BEFORE, STEPS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidemill.sinks.storage.driver.store_of", gated)
        made = Trials(history, tmp_path_factory.mktemp("runs"), sink, FileReader, TOML)
    assert sum(map(len, made.truth.values())) >= 9
    return made


def sink(folder: Path) -> str:
    return f"file://{folder}/out?protocol=csv&date-separator=none"


def gated(uri: SinkUri) -> GatedStore:
    return GatedStore(store_of(uri), current_gate())


@pytest.mark.parametrize("seed", seeds(40))
def test_a_schedule(seed: int, trials: Trials[Lines], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.sinks.storage.driver.store_of", gated)
    trials.run(seed)
