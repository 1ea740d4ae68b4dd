"""A database under two to four drivers that freeze, die and lose answers at any statement, those of DDLs too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sinks.mysql.conftest import mariadb
from tests.support.delivery.database_runs import FORCED, hurried
from tests.support.servers.mariadb import MariaDb
from tests.support.simulate.databases import DatabaseReader, Rows, Server, gated_driver
from tests.support.simulate.drivers import History
from tests.support.simulate.histories import DATABASE_BEFORE, DATABASE_STEPS
from tests.support.simulate.trials import Trials, seeds

__all__ = ["mariadb"]
DRIVER = "tidemill.sinks.mysql.driver.MysqlDriverSink"


@pytest.fixture(scope="module")
def server(mariadb: MariaDb) -> Server:
    return Server(mariadb)


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
        hurried(patch, plain=False)
        patch.setattr(DRIVER, gated_driver(server))
        made = Trials(history, tmp_path_factory.mktemp("runs"), sink, reader, FORCED if request.param == "global" else "")
    assert sum(map(len, made.truth.values())) >= 9
    return made


@pytest.mark.parametrize("seed", seeds(12))
def test_a_schedule(seed: int, trials: Trials[Rows], server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    hurried(monkeypatch, plain=False)
    monkeypatch.setattr(DRIVER, gated_driver(server))
    trials.run(seed)
