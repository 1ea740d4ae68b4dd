"""The storage sink under two to four drivers that freeze, die and lose answers at any effect."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.simulate.actors import current_gate
from tests.support.simulate.drivers import Changefeed, History
from tests.support.simulate.histories import BEFORE, STEPS
from tests.support.simulate.schedule import Event, Run, made, shrunk
from tests.support.simulate.stores import GatedStore
from tidemill.sinks.storage.open import store_of

SEEDS = int(os.environ.get("SEEDS", "60"))
FIRST = int(os.environ.get("SEED", "0"))
TOML = "[sink.csv]\ninclude-commit-ts = true\n"
_DATA = re.compile(r"(.*)/([0-9]+)/CDC([0-9]+)\.csv")


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    return History.of(tmp_path_factory.mktemp("log"), BEFORE, STEPS)


@pytest.fixture(autouse=True)
def gated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.sinks.storage.driver.store_of", lambda uri: GatedStore(store_of(uri), current_gate()))


def published(folder: Path) -> dict[str, list[bytes]]:
    """The lines that readers see, in order, by table."""
    files = []
    for path in folder.rglob("*.csv"):
        name = path.relative_to(folder).as_posix()
        match = _DATA.fullmatch(name)
        if match is None or name.startswith(".tidemill/"):
            continue
        index = path.parent / "meta" / "CDC.index"
        if index.exists() and path.name <= index.read_text().strip():
            files.append((match[1], int(match[2]), int(match[3]), path.read_bytes()))
    found: dict[str, list[bytes]] = {}
    for table, _, _, data in sorted(files):
        found.setdefault(table, []).extend(data.splitlines())
    return found


def checkpoint(folder: Path) -> int:
    metadata = folder / "metadata"
    return int(json.loads(metadata.read_bytes())["checkpoint-ts"]) if metadata.exists() else 0


def at_or_below(lines: list[bytes], ts: int) -> list[bytes]:
    return [line for line in lines if int(line.split(b",")[3]) <= ts]


class Reader:
    """Reads after each effect: nothing that was published goes back, and at the checkpoint everything is there once."""

    def __init__(self, folder: Path, truth: dict[str, list[bytes]]) -> None:
        self.folder, self.truth = folder, truth
        self.checkpoint = 0
        self.seen: dict[str, list[bytes]] = {}

    def check(self) -> None:
        now, lines = checkpoint(self.folder), published(self.folder)
        assert now >= self.checkpoint, f"metadata went back from {self.checkpoint} to {now}"
        for table, before in self.seen.items():
            assert lines.get(table, [])[: len(before)] == before, f"what was published of {table} is gone"
        for table, all_lines in self.truth.items():
            assert at_or_below(lines.get(table, []), now) == at_or_below(all_lines, now), f"{table} at {now}"
        self.checkpoint, self.seen = now, lines


def run(folder: Path, history: History, events: list[Event] | None, truth: dict[str, list[bytes]]) -> tuple[Run, Path]:
    out = folder / "out"
    feed = Changefeed(history, folder, f"file://{out}?protocol=csv&date-separator=none", TOML)
    reader = Reader(out, truth)
    simulated = Run(feed.drive, reader.check)
    simulated.play(events or [])
    return simulated, out


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, history: History) -> tuple[int, dict[str, list[bytes]]]:
    """The number of effects, and what is published."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidemill.sinks.storage.driver.store_of", lambda uri: GatedStore(store_of(uri), current_gate()))
        simulated, out = run(tmp_path_factory.mktemp("alone"), history, None, {})
    return simulated.effects, published(out)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_a_schedule(seed: int, tmp_path: Path, history: History, undisturbed: tuple[int, dict[str, list[bytes]]]) -> None:
    effects, truth = undisturbed
    assert sum(map(len, truth.values())) >= 9
    events = made(seed, effects)
    numbers = iter(range(1000))

    def failure(schedule: Any) -> AssertionError | None:
        try:
            run(tmp_path / str(next(numbers)), history, list(schedule), truth)
        except AssertionError as error:
            return error
        return None

    error = failure(events)
    if error is not None:
        shortest = shrunk(events, lambda part: failure(part) is not None)
        raise AssertionError(f"seed {seed}: {shortest}\n{failure(shortest)}") from error
