"""A view into a database or a lake, kept by processes one after the other that die, lose answers and meet faults at any effect.

None stands still beside another: the state of a view is a file that one process holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.mysql.conftest import mariadb
from tests.support.lake.lakes import rows_at
from tests.support.servers.mariadb import MariaDb
from tests.support.simulate.actors import Actor, current_gate, undisturbed
from tests.support.simulate.databases import Server, gated_connection
from tests.support.simulate.drivers import History
from tests.support.simulate.lakes import GatedTables
from tests.support.simulate.schedule import Fail, Kill
from tests.support.simulate.stores import GatedStore
from tests.support.simulate.trials import Reader, Schedules, seeds
from tests.support.spark.sessions import spark_session
from tidemill.config.uri import SinkUri
from tidemill.sinks.lake.base import Tables
from tidemill.sinks.lake.manifest import read_head, read_manifest
from tidemill.sinks.lake.open import store_of, tables_of
from tidemill.sinks.storage.store import LocalStore, Store
from tidemill.views import View, Views, create
from tidemill.views.engine import Engine

__all__ = ["mariadb"]
pytestmark = [pytest.mark.spark, pytest.mark.slow]
session = spark_session()


@pytest.fixture(scope="module", autouse=True)
def _spark(session: Any) -> None:
    """Spark analyses the queries of views that are created: here the one that runs for all."""


STEPS = (
    (
        "CREATE TABLE o (id INT PRIMARY KEY, c INT)",
        "INSERT INTO o VALUES (1, 1), (2, 1), (3, 2)",
    ),
    ("BEGIN", "UPDATE o SET c = 2 WHERE id = 1", "DELETE FROM o WHERE id = 3", "COMMIT"),
    (),
    ("INSERT INTO o VALUES (4, 3)", "TRUNCATE TABLE o", "INSERT INTO o VALUES (5, 3), (6, 3)"),
    ("DELETE FROM o WHERE id = 5",),
)
QUERY = "SELECT c, count(*) AS n, sum(id) AS s FROM o GROUP BY c"
Rows = list[tuple[int, int, int]]


def wanted(history: History, ts: int) -> Rows:
    """The query at a ts."""
    groups: dict[int, list[int]] = defaultdict(list)
    for row in history.sql.tables_at(ts)["app", "o"].rows:
        groups[row["c"]].append(row["id"])
    return sorted((c, len(ids), sum(ids)) for c, ids in groups.items())


class ViewReader:
    """The target's resolved ts never goes back, and its rows are the query at it."""

    def __init__(self, history: History) -> None:
        self._history, self._resolved = history, 0

    def read(self) -> tuple[int, Rows]:
        """The target's resolved ts, 0 without one, and its rows."""
        raise NotImplementedError

    def seen(self) -> Rows:
        return self.read()[1]

    def check(self) -> None:
        now, rows = self.read()
        assert now >= self._resolved, f"the view went back from {self._resolved} to {now}"
        self._resolved = now
        if now:
            assert rows == wanted(self._history, now), f"at {now}"


class TableReader(ViewReader):
    """Of a database."""

    def __init__(self, history: History, server: Server) -> None:
        super().__init__(history)
        self._server = server

    def read(self) -> tuple[int, Rows]:
        known = self._server.rows("SELECT resolved_ts FROM views._tidemill")
        if not known[0][0]:
            return 0, []
        return known[0][0], [(c, n, int(s)) for c, n, s in self._server.rows("SELECT c, n, s FROM views.totals ORDER BY c")]


class LakeReader(ViewReader):
    """Of a lake, by its head."""

    def __init__(self, history: History, lake: Path) -> None:
        super().__init__(history)
        self._lake = lake

    def read(self) -> tuple[int, Rows]:
        store = LocalStore(self._lake)
        head = read_head(store)
        if not head.manifest:
            return 0, []
        [table] = read_manifest(store, head.manifest).tables.values()
        return head.resolved_ts, sorted((row["c"], row["n"], int(row["s"])) for row in rows_at(self._lake, table))


def gated_store(uri: SinkUri) -> GatedStore:
    return GatedStore(store_of(uri), current_gate())


def gated_tables(uri: SinkUri, store: Store) -> Tables:
    tables: Tables = GatedTables(tables_of(uri, store_of(uri)), current_gate())  # type: ignore[assignment]
    return tables


def gated(effect: str, act: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given, **more: current_gate()(effect, partial(act, *given, **more))


def gate(patch: pytest.MonkeyPatch, server: Server) -> None:
    patch.setattr("tidemill.views.targets.mysql.Connection", gated_connection(server))
    patch.setattr("tidemill.views.targets.delta.store_of", gated_store)
    patch.setattr("tidemill.views.targets.delta.tables_of", gated_tables)
    for owner, name, effect in (
        (Engine, "advance", "commit the state"),
        (Engine, "delivered", "note the delivery"),
        (Views, "write_progress", "write the progress"),
    ):
        patch.setattr(owner, name, gated(effect, getattr(owner, name)))


@pytest.fixture(scope="module")
def server(mariadb: MariaDb) -> Server:
    return Server(mariadb)


@pytest.fixture(scope="module", params=["database", "lake"])
def schedules(request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Schedules[Rows]:
    history = History.of(tmp_path_factory.mktemp("log"), (), STEPS)
    into = {"database": lambda _: server.db.uri, "lake": lambda folder: f"delta://{folder}/lake?compact-every=2"}[request.param]

    def body(folder: Path) -> Callable[[Actor], None]:
        server.start_over(())
        views = Views(folder / "views")

        def begin(actor: Actor) -> None:
            create(views, "totals", history.log, QUERY, into(folder), "app")
            server.end(actor)

        def keep(actor: Actor) -> None:
            try:
                with View(views, "totals") as view:
                    for ts in history.cuts:
                        view.catch_up(ts)
            finally:
                server.end(actor)

        undisturbed(begin)
        return keep

    def reader(folder: Path, _: Rows | None) -> Reader[Rows]:
        return TableReader(history, server) if request.param == "database" else LakeReader(history, folder / "lake")

    with pytest.MonkeyPatch.context() as patch:
        made = _made(patch, server, tmp_path_factory.mktemp("runs"), body, reader)
    assert made.truth == wanted(history, history.cuts[-1])
    return made


def _made(
    patch: pytest.MonkeyPatch,
    server: Server,
    folder: Path,
    body: Callable[[Path], Callable[[Actor], None]],
    reader: Callable[[Path, Rows | None], Reader[Rows]],
) -> Schedules[Rows]:
    gate(patch, server)
    return Schedules(folder, body, reader, (Kill, Fail))


@pytest.mark.parametrize("seed", seeds(3, 6))
def test_a_schedule(seed: int, schedules: Schedules[Rows], server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    gate(monkeypatch, server)
    schedules.run(seed)
