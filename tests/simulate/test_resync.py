"""`tidemill resync` while a changefeed goes on: two to four processes that capture and deliver freeze, die and lose answers at any effect.

The log lacks the rows that were there before it began. Once the changefeed has passed the ts that the request was answered with, readers
have them too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path

import pytest

from tests.support.simulate.actors import Actor, current_gate
from tests.support.simulate.drivers import Changefeed
from tests.support.simulate.growing_logs import GrowingLog
from tests.support.simulate.stores import GatedStore
from tests.support.simulate.trials import Schedules, seeds
from tidemill.capture import initial_load as asking
from tidemill.changelog import initial_load
from tidemill.config.uri import SinkUri
from tidemill.sinks.storage.open import store_of
from tidemill.tidb.codec import decode_bytes, encode_bytes, encode_int

BEFORE = (
    "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE u (id INT PRIMARY KEY, v INT)",
    "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (7, 7)",
)
STEPS = (
    ("INSERT INTO t VALUES (4, 4)", "UPDATE t SET v = 20 WHERE id = 2", "INSERT INTO u VALUES (1, 1)"),
    ("DELETE FROM t WHERE id = 3", "INSERT INTO u VALUES (2, 2)", "UPDATE t SET v = 21 WHERE id = 2"),
    ("UPDATE t SET v = 40 WHERE id = 4", "ALTER TABLE t ADD COLUMN w INT DEFAULT 7", "INSERT INTO t VALUES (5, 5, 5)"),
    ("UPDATE t SET v = 10 WHERE id = 1",),
)
OLD = {"1", "3", "7"}
"""Rows of t that changed before the log began, and not since."""
SINK = "file://{0}/out?protocol=csv&date-separator=none"
TOML = "[sink.csv]\ninclude-commit-ts = true\n"
REQUEST = "asked"
Table = dict[str, str]
"""Values by id."""


def lines_of(out: Path, table: str) -> list[list[str]]:
    """What is published of a table, in order: operation, table, database, commit ts, id, value."""
    found = []
    for folder in sorted((out / "app" / table).glob("*/"), key=lambda path: int(path.name) if path.name.isdigit() else 0):
        index = folder / "meta" / "CDC.index"
        last = index.read_text().strip() if index.exists() else ""
        found += [path.read_text().splitlines() for path in sorted(folder.glob("CDC*.csv")) if path.name <= last]
    return [line.replace('"', "").split(",") for line in chain(*found)]


def applied(lines: Iterable[list[str]]) -> Table:
    rows: Table = {}
    for operation, _, _, _, key, value, *_ in lines:
        if operation == "D":
            rows.pop(key, None)
        else:
            rows[key] = value
    return rows


class TableReader:
    """Nothing that was published goes back. At a checkpoint the rows are the upstream's; until the ts of the answer, rows from before the
    log may be missing."""

    def __init__(self, folder: Path, log: GrowingLog) -> None:
        self._out, self._log = folder / "out", log
        self._checkpoint = 0
        self._before: dict[str, list[list[str]]] = {}

    def seen(self) -> tuple[bool, list[Table]]:
        """Whether the request was answered with a ts that the changefeed has passed, and the rows."""
        return 0 < self._answer() <= self._checkpoint, [applied(lines_of(self._out, table)) for table in "tu"]

    def _answer(self) -> int:
        data = self._log.storage.read(f"{initial_load.REQUESTS}/{REQUEST}.json.done")
        return int(json.loads(data)["ts"]) if data is not None else 0

    def check(self) -> None:
        metadata = self._out / "metadata"
        now = int(json.loads(metadata.read_text())["checkpoint-ts"]) if metadata.exists() else 0
        assert now >= self._checkpoint, f"metadata went back from {self._checkpoint} to {now}"
        self._checkpoint = now
        wanted = self._log.history.sql.tables_at(now) if now else {}
        for table in "tu":
            lines = lines_of(self._out, table)
            before = self._before.get(table, [])
            assert lines[: len(before)] == before, f"what was published of {table} is gone"
            self._before[table] = lines
            if now:
                rows = {str(row["id"]): str(row["v"]) for row in wanted["app", table].rows}
                self._compare(table, applied(line for line in lines if int(line[3]) <= now), rows)

    def _compare(self, table: str, found: Table, wanted: Table) -> None:
        assert found.items() <= wanted.items(), f"{table} at {self._checkpoint}: {found}, not {wanted}"
        may_lack = OLD if table == "t" and not 0 < self._answer() <= self._checkpoint else set()
        missing = wanted.keys() - found.keys() - may_lack
        assert not missing, f"{table} at {self._checkpoint}, answered with {self._answer()}, lacks {missing}"


def gated(uri: SinkUri) -> GatedStore:
    return GatedStore(store_of(uri), current_gate())


async def borders(_: object, ranges: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """A region begins at the row 3 of each table."""
    return [encode_bytes(decode_bytes(low)[0] + encode_int(3)) for low, _ in ranges]


def gate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tidemill.sinks.storage.driver.store_of", gated)
    patch.setattr("tidemill.capture.tikv.read.tables.region_borders", borders)


@pytest.fixture(scope="module")
def schedules(tmp_path_factory: pytest.TempPathFactory) -> Schedules[tuple[bool, list[Table]]]:
    log = GrowingLog.of(tmp_path_factory.mktemp("log"), BEFORE, STEPS)
    logs: dict[Path, GrowingLog] = {}

    def body(folder: Path) -> Callable[[Actor], None]:
        made = logs[folder] = log.copy(folder.with_name(f"{folder.name}.log"))

        def reaches(actor: Actor, at: int) -> int:
            """Like a capture: the log grows by a step; what is asked for meanwhile is planned and read."""
            if at >= made.history.cuts[0]:
                made.answer(actor)
            made.grow(actor, next(ts for ts in made.history.cuts if ts > at))
            return made.head

        asking.ask(made.storage, REQUEST, "app.t")
        return Changefeed(made.history, folder, SINK.format(folder), TOML, reaches=reaches).drive

    with pytest.MonkeyPatch.context() as patch:
        gate(patch)
        made = Schedules(tmp_path_factory.mktemp("runs"), body, lambda folder, _: TableReader(folder, logs[folder]))
    answered, (table, _) = made.truth
    assert answered
    assert table == {"1": "10", "2": "21", "4": "40", "5": "5", "7": "7"}
    return made


def test_a_plan_whose_ts_the_log_had_passed_is_found(
    schedules: Schedules[tuple[bool, list[Table]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if nobody looked at the heads."""
    gate(monkeypatch)
    monkeypatch.setattr(asking, "read_head", lambda *_: 0)
    schedules.finds(*map(schedules.events, (22, *range(100))))


@pytest.mark.parametrize("seed", seeds(16, 40))
def test_a_schedule(seed: int, schedules: Schedules[tuple[bool, list[Table]]], monkeypatch: pytest.MonkeyPatch) -> None:
    gate(monkeypatch)
    schedules.run(seed)
