"""A file of lines under two to four drivers that freeze, die, lose answers or all power, and see old listings at any effect, also
behind the fence."""

from __future__ import annotations

import json
import os
from base64 import b64decode
from collections.abc import Callable
from functools import partial
from io import FileIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.simulate.actors import current_actor, current_gate
from tests.support.simulate.drivers import History
from tests.support.simulate.files import GatedFileLock, GatedPartReader
from tests.support.simulate.histories import BEFORE, STEPS
from tests.support.simulate.power import Supplies
from tests.support.simulate.trials import Trials, seeds
from tidemill.changefeed.feed_folder import CHECKPOINT
from tidemill.sinks import messages

SUPPLIES = Supplies()

Lines = dict[str, list[str]]
"""Lines of each table, each where it came first."""


HEAD = 16
"""Bytes before the key of a message's one event."""


def table_of(line: str) -> str:
    """The table; empty for a resolved event. Raises ValueError for a line that is no message."""
    return str(json.loads(b64decode(json.loads(line)["key"])[HEAD:]).get("tbl", ""))


class LineReader:
    """What was there when a checkpoint was saved stays, and is whole lines: an append that failed is cut off again. Each line of the truth
    is there at the end, and lines of a table come first in order."""

    def __init__(self, folder: Path, truth: Lines | None) -> None:
        self._folder, self._path, self._truth = folder, folder / "out.jsonl", truth
        self._checkpoint, self._kept = 0, b""

    def seen(self) -> Lines:
        lines, rest = self._lines()
        torn_end = not self._path.read_bytes().endswith(b"\n")
        assert len(rest) <= torn_end, f"a line is torn: {rest[0]}"
        return lines

    def _lines(self) -> tuple[Lines, list[str]]:
        """The lines up to the first that is none, and what follows from there."""
        found: dict[str, dict[str, None]] = {}
        rest = self._path.read_text().splitlines() if self._path.exists() else []
        while rest:
            try:
                table = table_of(rest[0])
            except ValueError:
                break
            line = rest.pop(0)
            if table:
                found.setdefault(table, {}).setdefault(line)
        return {table: list(lines) for table, lines in found.items()}, rest

    def forget(self) -> None:
        """What a checkpoint that is gone as well stands for may be gone."""
        if self._saved() != self._checkpoint:
            self._checkpoint, self._kept = 0, b""

    def _saved(self) -> int:
        """The checkpoint; 0: there is none."""
        return max((json.loads(path.read_bytes()).get("checkpoint_ts", 0) for path in self._folder.rglob(CHECKPOINT)), default=0)

    def check(self) -> None:
        now = self._path.read_bytes() if self._path.exists() else b""
        assert now.startswith(self._kept), "what was delivered is gone"
        found, rest = self._lines()
        if self._truth is not None:
            for table, lines in found.items():
                assert lines == self._truth[table][: len(lines)], f"{table} has other lines, or in another order"
        checkpoint = self._saved()
        if checkpoint != self._checkpoint:
            whole = now[: now.rfind(b"\n") + 1]  # a driver of the past may have torn the end since
            assert len(rest) <= (whole != now), f"a line is torn behind which others were delivered: {rest[0]}"
            self._checkpoint, self._kept = checkpoint, whole


class GatedFile(FileIO):
    """A file that is cut, and written to, as an effect."""

    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(path, mode)
        self._actor = current_actor()

    def truncate(self, size: int | None = None) -> int:
        return self._actor.gate("cut", partial(FileIO.truncate, self, size))

    def write(self, data: Any) -> int:
        """A driver that was frozen may meet a full disk, once."""
        torn = self._actor.late and len(data) % 2
        if torn:
            self._actor.late = False
        return self._actor.gate("append", partial(FileIO.write, self, data[: len(data) // 2] if torn else data))


def gate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(messages, "FileIO", GatedFile)
    patch.setattr(messages, "FileLock", GatedFileLock)
    patch.setattr(messages, "PartReader", GatedPartReader)
    SUPPLIES.install(patch)
    sync = SimpleNamespace(
        **{name: getattr(os, name) for name in ("SEEK_END", "pread", "strerror")}, fsync=gated("sync", os.fsync)
    )  # as installed
    patch.setattr(messages, "os", sync)


def gated(name: str, act: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given: current_gate()(name, partial(act, *given))


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials[Lines]:
    history = History.of(tmp_path_factory.mktemp("log"), BEFORE, STEPS)
    with pytest.MonkeyPatch.context() as patch:
        gate(patch)
        made = Trials(history, tmp_path_factory.mktemp("runs"), sink, LineReader, behind=True, supplies=SUPPLIES)
    assert sum(map(len, made.truth.values())) >= 9
    return made


def sink(folder: Path) -> str:
    return f"messages://{folder}/out.jsonl?protocol=open-protocol&partition-num=1&max-batch-size=1"


@pytest.mark.parametrize("seed", seeds(10, 20))
def test_a_schedule(seed: int, trials: Trials[Lines], monkeypatch: pytest.MonkeyPatch) -> None:
    gate(monkeypatch)
    trials.run(seed)
