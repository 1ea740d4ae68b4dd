"""A file of lines under two to four drivers that freeze, die and lose answers at any effect, also between the fence and a write."""

from __future__ import annotations

import json
import os
from base64 import b64decode
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.simulate.actors import current_gate
from tests.support.simulate.drivers import History
from tests.support.simulate.histories import BEFORE, STEPS
from tests.support.simulate.schedule import HOLDING
from tests.support.simulate.trials import Trials, seeds
from tidemill.changefeed.feed_folder import CHECKPOINT
from tidemill.sinks import messages

Lines = dict[str, list[str]]
"""Lines of each table, each where it came first."""


HEAD = 16
"""Bytes before the key of a message's one event."""


def table_of(line: str) -> str:
    """The table; empty for a resolved event."""
    return str(json.loads(b64decode(json.loads(line)["key"])[HEAD:]).get("tbl", ""))


class LineReader:
    """What was there when a checkpoint was saved stays: an append that failed is cut off again. Each line of the truth is there at the end,
    and lines of a table come first in order."""

    def __init__(self, folder: Path, truth: Lines | None) -> None:
        self._folder, self._path, self._truth = folder, folder / "out.jsonl", truth
        self._checkpoint, self._kept = b"", b""

    def seen(self) -> Lines:
        found: dict[str, dict[str, None]] = {}
        for line in self._path.read_text().splitlines() if self._path.exists() else ():
            if table := table_of(line):
                found.setdefault(table, {}).setdefault(line)
        return {table: list(lines) for table, lines in found.items()}

    def check(self) -> None:
        now = self._path.read_bytes() if self._path.exists() else b""
        assert now.startswith(self._kept), "what was delivered is gone"
        if self._truth is not None:
            for table, lines in self.seen().items():
                assert lines == self._truth[table][: len(lines)], f"{table} has other lines, or in another order"
        checkpoint = b"".join(path.read_bytes() for path in self._folder.rglob(CHECKPOINT))
        if checkpoint != self._checkpoint:
            self._checkpoint, self._kept = checkpoint, now


def gated(name: str, act: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given: current_gate()(name, partial(act, *given))


def gate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(messages, "write_all", gated("append", messages.write_all))
    patch.setattr(messages, "_cut_torn_line", gated("cut a torn line", messages._cut_torn_line))
    # The cut follows the check of the fence at once: nothing guards the file against a driver that is frozen just between them.
    cut = gated(f"{HOLDING}cut what failed", os.truncate)
    patch.setattr(messages, "os", SimpleNamespace(SEEK_END=os.SEEK_END, fsync=gated("sync", os.fsync), truncate=cut))


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials[Lines]:
    history = History.of(tmp_path_factory.mktemp("log"), BEFORE, STEPS)
    with pytest.MonkeyPatch.context() as patch:
        gate(patch)
        made = Trials(history, tmp_path_factory.mktemp("runs"), sink, LineReader)
    assert sum(map(len, made.truth.values())) >= 9
    return made


def sink(folder: Path) -> str:
    return f"messages://{folder}/out.jsonl?protocol=open-protocol&partition-num=1&max-batch-size=1"


@pytest.mark.parametrize("seed", seeds(20))
def test_a_schedule(seed: int, trials: Trials[Lines], monkeypatch: pytest.MonkeyPatch) -> None:
    gate(monkeypatch)
    trials.run(seed)
