"""`tidemill redo apply`, two to four of them behind a changefeed that died, that freeze, die and lose answers at any statement."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC
from pathlib import Path

import pytest

from tests.sinks.mysql.conftest import mariadb
from tests.support.delivery.database_runs import hurried
from tests.support.servers.mariadb import MariaDb
from tests.support.simulate.actors import Actor, Fate, Killed
from tests.support.simulate.databases import DatabaseReader, Rows, Server, gated_connection, gated_driver
from tests.support.simulate.drivers import GatedFence, History, Inline
from tests.support.simulate.histories import DATABASE_BEFORE, DATABASE_STEPS
from tests.support.simulate.trials import Schedules, seeds
from tidemill.changefeed import redo, replay
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings

__all__ = ["mariadb"]
pytestmark = pytest.mark.slow
DIES_AT = 120
"""Effects of the changefeed."""
DRIVER = "tidemill.sinks.mysql.driver.MysqlDriverSink"


@pytest.fixture(scope="module")
def server(mariadb: MariaDb) -> Server:
    return Server(mariadb)


def gate(patch: pytest.MonkeyPatch, server: Server) -> None:
    hurried(patch, plain=False)
    patch.setattr(DRIVER, gated_driver(server))
    patch.setattr(redo, "Connection", gated_connection(server))
    patch.setattr(redo, "Fence", GatedFence)
    patch.setattr(replay, "EitherRunner", lambda *_: Inline())


@pytest.fixture(scope="module")
def schedules(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Schedules[Rows]:
    history = History.of(tmp_path_factory.mktemp("log"), DATABASE_BEFORE, DATABASE_STEPS)
    uri = f"{server.db.uri}?worker-count=2"
    config = parse_config("")
    sink = config.sink_uri(uri)

    def body(_: Path) -> Callable[[Actor], None]:
        def apply(actor: Actor) -> None:
            try:
                begin, fence = redo.take_over(history.log, sink, "f", None)
                settings = Settings(begin.feed, sink, config, UTC)
                replay.replay(history.log, settings, start_ts=begin.ts, resumed=begin.resumed, fence=fence)
            finally:
                server.end(actor)

        def changefeed(actor: Actor) -> None:
            try:
                replay.replay(history.log, Settings("f", sink, config, UTC))
            finally:
                server.end(actor)

        server.start_over(DATABASE_BEFORE)
        died = Actor("changefeed", changefeed)
        died.start()
        for _ in range(DIES_AT):
            died.go(Fate.DONE)
        while died.effect is not None:
            died.go(Fate.KILLED_BEFORE)
        assert isinstance(died.error, Killed)
        return apply

    with pytest.MonkeyPatch.context() as patch:
        gate(patch, server)
        made = Schedules(tmp_path_factory.mktemp("runs"), body, lambda *_: DatabaseReader(server, history, whole=False))
    assert sum(map(len, made.truth.values())) >= 9
    return made


@pytest.mark.parametrize("seed", seeds(2, 5))
def test_a_schedule(seed: int, schedules: Schedules[Rows], server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    gate(monkeypatch, server)
    schedules.run(seed)
