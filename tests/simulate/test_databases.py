"""A database under two to four drivers that freeze, die and lose answers at any statement, those of DDLs too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.sinks.mysql.conftest import mariadb
from tests.support.delivery.database_runs import FORCED, hurried
from tests.support.servers.mariadb import MariaDb
from tests.support.simulate.databases import DatabaseReader, Rows, Server, gated_driver
from tests.support.simulate.drivers import History
from tests.support.simulate.histories import DATABASE_BEFORE, DATABASE_STEPS
from tests.support.simulate.schedule import Fail, Freeze
from tests.support.simulate.trials import Trials, seeds
from tidemill.sinks.mysql import bookkeeping
from tidemill.sinks.mysql.ddls import state, statement

__all__ = ["mariadb"]
DRIVER = "tidemill.sinks.mysql.driver.MysqlDriverSink"


@pytest.fixture(scope="module")
def server(mariadb: MariaDb) -> Server:
    return Server(mariadb)


def gate(patch: pytest.MonkeyPatch, server: Server) -> None:
    hurried(patch, plain=False)
    patch.setattr(DRIVER, gated_driver(server))


@pytest.fixture(scope="module", params=["table", "global"])
def trials(request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Trials[Rows]:
    history = History.of(tmp_path_factory.mktemp("log"), DATABASE_BEFORE, DATABASE_STEPS)
    uri = f"{server.db.uri}?worker-count=2&transaction-atomicity={request.param}"

    def sink(_: Path) -> str:
        server.start_over(DATABASE_BEFORE)
        return uri

    def reader(_: Path, truth: Rows | None) -> DatabaseReader:
        return DatabaseReader(server, history, whole=request.param == "global")

    with pytest.MonkeyPatch.context() as patch:
        gate(patch, server)
        made = Trials(history, tmp_path_factory.mktemp("runs"), sink, reader, FORCED if request.param == "global" else "")
    assert sum(map(len, made.truth.values())) >= 9
    return made


@contextmanager
def unlocked(*_: object) -> Iterator[None]:
    """In the place of the lock under which DDLs run, and of the check once it is held."""
    yield


@pytest.mark.parametrize("trials", ["table"], indirect=True)
def test_ddls_that_are_not_fenced_are_found(trials: Trials[Rows], server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TRUNCATE TABLE of a driver that stood still before it, while the next one delivered all."""
    gate(monkeypatch, server)
    monkeypatch.setattr(statement, "held", unlocked)
    monkeypatch.setattr(bookkeeping, "held", unlocked)
    trials.finds(*([Freeze(at, trials.effects, 0)] for at in trials.at("TRUNCATE TABLE")))


@pytest.mark.parametrize("trials", ["table"], indirect=True)
def test_ddls_that_run_again_are_found(trials: Trials[Rows], server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """An EXCHANGE PARTITION whose answer is lost."""
    gate(monkeypatch, server)
    monkeypatch.setattr(state, "ran", lambda *_: False)
    trials.finds(*([Fail(at, lost=True)] for at in trials.at("EXCHANGE PARTITION")))


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_a_schedule(seed: int, trials: Trials[Rows], server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    gate(monkeypatch, server)
    trials.run(seed)
