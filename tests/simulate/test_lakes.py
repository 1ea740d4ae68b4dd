"""Lakes under two to four drivers that freeze, die, lose answers or all power at any effect, also behind a check of the fence.

The tables that a manifest names are compared with the upstream's at its ts, whenever the head has moved; at the end the newest versions of
the tables as well, and the names in the catalog.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from tests.support.lake.lakes import expected, rows_at, shown
from tests.support.simulate.actors import AtOnce, current_gate
from tests.support.simulate.drivers import History
from tests.support.simulate.lakes import GatedTables, gated_stamp
from tests.support.simulate.power import Supplies
from tests.support.simulate.schedule import Freeze
from tests.support.simulate.stores import GatedStore
from tests.support.simulate.trials import Trials, seeds
from tidemill.config.uri import SinkUri, parse_sink_uri
from tidemill.sinks.lake.base import Move, Stamp, Tables
from tidemill.sinks.lake.delta import DeltaTables
from tidemill.sinks.lake.iceberg import IcebergTables
from tidemill.sinks.lake.manifest import FOLDER, Name, read_head, read_manifest
from tidemill.sinks.lake.open import store_of, tables_of
from tidemill.sinks.storage import paths
from tidemill.sinks.storage.store import LocalStore, Store

pytestmark = pytest.mark.slow
URIS = {
    "delta": "delta://{0}/lake?compact-every=2",
    "iceberg": "iceberg://c/cdc?warehouse=file://{0}/lake&catalog-uri=sqlite:///{0}/catalog.db&compact-every=2",
}
BEFORE = ("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE u (id INT PRIMARY KEY, w VARCHAR(9))")
STEPS = (
    ("BEGIN", "INSERT INTO t VALUES (1, 1), (2, 2)", "INSERT INTO u VALUES (1, 'u')", "COMMIT"),
    ("INSERT INTO t VALUES (3, 3)", "RENAME TABLE t TO x, u TO t, x TO u"),
    ("BEGIN", "UPDATE u SET v = 20 WHERE id = 2", "DELETE FROM t", "COMMIT", "RENAME TABLE u TO s"),
    ("INSERT INTO s VALUES (4, 4)", "DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (7)"),
    ("INSERT INTO t VALUES (8)", "TRUNCATE TABLE s", "INSERT INTO s VALUES (5, 5)"),
)
TAKE_OVER = DeltaTables._take_over
Rows = dict[Name, list[str]]


class LakeReader:
    """The head never goes back, and the tables of its manifest are the upstream's."""

    def __init__(self, uri: str, lake: Path, history: History) -> None:
        self._uri, self._lake, self._history = uri, lake, history
        self._resolved = 0

    def forget(self) -> None:
        """Begin again."""
        self._resolved = 0

    def check(self) -> None:
        head = read_head(LocalStore(self._lake))
        assert head.resolved_ts >= self._resolved, f"head.json went back from {self._resolved} to {head.resolved_ts}"
        if head.resolved_ts == self._resolved:
            return
        self._resolved = head.resolved_ts
        tables = read_manifest(LocalStore(self._lake), head.manifest).tables
        found = {name: shown(rows_at(self._lake, at)) for name, at in tables.items()}
        wanted = {name: expected(table) for name, table in self._history.sql.tables_at(head.resolved_ts).items()}
        for name in found.keys() | {name for name, rows in wanted.items() if rows}:
            assert found.get(name) == wanted.get(name), f"{name} at {head.resolved_ts}"

    def seen(self) -> Rows:
        """The newest rows of each table, as a reader finds them who knows no manifests."""
        uri = parse_sink_uri(self._uri)
        tables = tables_of(uri, LocalStore(self._lake))
        if isinstance(tables, IcebergTables):
            names = [(name[-2], name[-1]) for name in tables._catalog.list_tables("cdc.app")]
        else:
            names = [("app", path.name) for path in (self._lake / "app").iterdir()]
        return {name: shown(row for batch in tables.read(tables.place(*name)) for row in batch.to_pylist()) for name in names}


def gated_store(uri: SinkUri) -> GatedStore:
    return GatedStore(store_of(uri), current_gate())


def gated_tables(uri: SinkUri, store: Store) -> Tables:
    tables: Tables = GatedTables(tables_of(uri, store_of(uri)), current_gate())  # type: ignore[assignment]
    return tables


def of_others(path: Path) -> bool:
    """Whether the libraries and SQLite write it, not Tidemill."""
    return path.parts[0] in ("lake", "catalog.db") and not {FOLDER, paths.FOLDER} & {*path.parts}


SUPPLIES = Supplies(of_others)


def gate(patch: pytest.MonkeyPatch) -> None:
    SUPPLIES.install(patch)
    patch.setattr("tidemill.sinks.lake.driver.sink.store_of", gated_store)
    patch.setattr("tidemill.sinks.lake.driver.sink.tables_of", gated_tables)
    patch.setattr("tidemill.sinks.lake.driver.sink.Stamp", gated_stamp)
    patch.setattr("tidemill.sinks.lake.driver.sink.ThreadPoolExecutor", AtOnce)


@pytest.fixture(scope="module", params=URIS)
def trials(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trials[Rows]:
    history = History.of(tmp_path_factory.mktemp("log"), BEFORE, STEPS)

    def sink(folder: Path) -> str:
        (folder / "lake").mkdir(parents=True, exist_ok=True)
        return URIS[request.param].format(folder)

    def reader(folder: Path, truth: Rows | None) -> LakeReader:
        return LakeReader(sink(folder), folder / "lake", history)

    with pytest.MonkeyPatch.context() as patch:
        gate(patch)
        made = Trials(history, tmp_path_factory.mktemp("runs"), sink, reader, supplies=SUPPLIES)
    assert {name for name, rows in made.truth.items() if rows} == {("app", "s"), ("app", "t")}
    return made


def taken_over_late(tables: DeltaTables, move: Move, stamp: Stamp) -> None:
    """`DeltaTables._take_over`, but that it reads the table which it replaces behind the check of the fence."""

    def check(*, now: bool = False) -> None:
        stamp.check_fence(now=now)
        if move.place in tables._open:
            tables._open[move.place].update_incremental()

    TAKE_OVER(tables, move, replace(stamp, check_fence=check))


def dropped_whatever_it_is(catalog: Catalog, place: str, _: str) -> bool:
    """`drop_exactly`, but that it is not exact."""
    catalog.drop_table(place)
    return True


@pytest.mark.parametrize("trials", ["delta"], indirect=True)
def test_a_rename_that_replaces_a_later_version_is_found(trials: Trials[Rows], monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver stood still in it, behind the fence, while the next one delivered all."""
    gate(monkeypatch)
    monkeypatch.setattr(DeltaTables, "_take_over", taken_over_late)
    renames, behind = trials.at("rename"), trials.at("step behind the fence")
    trials.finds(*([Freeze(at, trials.effects, 0)] for at in behind if any(rename < at < rename + 5 for rename in renames)))


@pytest.mark.parametrize("trials", ["iceberg"], indirect=True)
def test_a_drop_of_a_table_that_was_made_since_is_found(trials: Trials[Rows], monkeypatch: pytest.MonkeyPatch) -> None:
    gate(monkeypatch)
    monkeypatch.setattr("tidemill.sinks.lake.iceberg.drop_exactly", dropped_whatever_it_is)
    trials.finds(trials.events(1), *([Freeze(at + 1, trials.effects, 0)] for at in trials.at("drop")))


@pytest.mark.parametrize("seed", seeds(3, 8))
def test_a_schedule(seed: int, trials: Trials[Rows], monkeypatch: pytest.MonkeyPatch) -> None:
    gate(monkeypatch)
    trials.run(seed)
