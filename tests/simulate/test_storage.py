"""The storage sink, in a folder and in a bucket, under drivers that freeze, die, and lose answers or all power at any effect."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.simulate.actors import current_actor, current_gate
from tests.support.simulate.buckets import Bucket, BucketStore, gate_s3
from tests.support.simulate.drivers import History
from tests.support.simulate.histories import BEFORE, STEPS
from tests.support.simulate.power import Supplies
from tests.support.simulate.stores import GatedStore
from tests.support.simulate.trials import Trials, seeds
from tidemill.config.uri import SinkUri
from tidemill.sinks.storage.open import store_of

TOML = "[sink.csv]\ninclude-commit-ts = true\n"
_DATA = re.compile(r"(.*)/([0-9]+)/CDC([0-9]+)\.(csv|json)")
_ENCODED_AT = re.compile(rb'(?<=,)"ts":[0-9]+,')
"""The member of Canal-JSON that differs when a batch is encoded again."""
PLACES = {
    "folder csv": "file://{0}/out?protocol=csv&date-separator=none",
    "bucket csv": "s3://b{0}/out?protocol=csv&date-separator=none&region=r&access-key=k&secret-access-key=s",
    "bucket canal-json": "s3://b{0}/out?protocol=canal-json&date-separator=none&enable-tidb-extension=true&region=r&access-key=k"
    "&secret-access-key=s",
}
SUPPLIES = Supplies()
BUCKETS: dict[str, Bucket] = defaultdict(Bucket)
"""By the folder that stands for it."""

Files = dict[str, bytes]
Lines = dict[str, list[bytes]]
"""The lines that readers see, in order, by table."""


def files_of(folder: Path) -> Files:
    if str(folder) in BUCKETS:
        root = f"{_root(str(folder))}/"
        return {key.removeprefix(root): data for key, data in BUCKETS[str(folder)].objects.items()}
    out = folder / "out"
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def published(files: Files) -> Lines:
    data = []
    for name, content in files.items():
        match = _DATA.fullmatch(name)
        folder, _, file = name.rpartition("/")
        index = files.get(f"{folder}/meta/CDC.index")
        if match is not None and index is not None and file <= index.decode().strip():
            data.append((match[1], int(match[2]), int(match[3]), content))
    found: Lines = {}
    for table, _, _, content in sorted(data):
        found.setdefault(table, []).extend(_ENCODED_AT.sub(b"", line) for line in content.splitlines())
    return found


def commit_ts(line: bytes) -> int:
    return int(json.loads(line)["_tidb"]["commitTs"]) if line.startswith(b"{") else int(line.split(b",")[3])


def at_or_below(lines: list[bytes], ts: int) -> list[bytes]:
    return [line for line in lines if commit_ts(line) <= ts]


class FileReader:
    """Nothing that was published goes back, and at the checkpoint everything is there once."""

    def __init__(self, folder: Path, truth: Lines | None) -> None:
        self._folder, self._truth = folder, truth or {}
        self._checkpoint = 0
        self._before: Lines = {}

    def seen(self) -> Lines:
        return published(files_of(self._folder))

    def forget(self) -> None:
        """Begin again."""
        self._checkpoint, self._before = 0, {}

    def check(self) -> None:
        files = files_of(self._folder)
        now = int(json.loads(files["metadata"])["checkpoint-ts"]) if "metadata" in files else 0
        lines = published(files)
        assert now >= self._checkpoint, f"metadata went back from {self._checkpoint} to {now}"
        for table, before in self._before.items():
            assert lines.get(table, [])[: len(before)] == before, f"what was published of {table} is gone"
        for table, truth in self._truth.items():
            assert at_or_below(lines.get(table, []), now) == at_or_below(truth, now), f"{table} at {now}"
        self._checkpoint, self._before = now, lines


def gate(patch: pytest.MonkeyPatch, place: str) -> None:
    if place.startswith("folder"):
        patch.setattr("tidemill.sinks.storage.driver.store_of", gated)
        SUPPLIES.install(patch)
        return
    gate_s3(patch)
    patch.setattr("tidemill.sinks.storage.driver.store_of", lambda uri: BucketStore(*_bucket(uri), current_actor()))
    patch.setattr("tidemill.sinks.storage.task.store_of", lambda uri: BucketStore(*_bucket(uri)))


def gated(uri: SinkUri) -> GatedStore:
    return GatedStore(store_of(uri), current_gate())


def _bucket(uri: SinkUri) -> tuple[Bucket, str]:
    folder = "/" + uri.path.strip("/").removesuffix("/out")
    return BUCKETS[folder], _root(folder)


def _root(folder: str) -> str:
    return f"b{folder}/out"


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    place: str = request.param
    return place


@pytest.fixture(scope="module")
def trials(place: str, tmp_path_factory: pytest.TempPathFactory) -> Trials[Lines]:
    history = History.of(tmp_path_factory.mktemp("log"), BEFORE, STEPS)

    def sink(folder: Path) -> str:
        return PLACES[place].format(folder)

    with pytest.MonkeyPatch.context() as patch:
        gate(patch, place)
        toml, supplies = TOML if "csv" in place else "", SUPPLIES if place.startswith("folder") else None
        made = Trials(history, tmp_path_factory.mktemp("runs"), sink, FileReader, toml, behind=supplies is None, supplies=supplies)
    assert sum(map(len, made.truth.values())) >= 9
    return made


@pytest.mark.parametrize("seed", seeds(8, 20))
def test_a_schedule(seed: int, place: str, trials: Trials[Lines], monkeypatch: pytest.MonkeyPatch) -> None:
    gate(monkeypatch, place)
    trials.run(seed)
