"""`tidemill consume` into a database, two to four of them, that freeze, die and lose answers at any statement."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sinks.mysql.conftest import mariadb
from tests.support.servers.mariadb import MariaDb
from tests.support.simulate.actors import Actor
from tests.support.simulate.consumers import DatabaseReader, MemoryTopics, Upstream, consume, sent
from tests.support.simulate.databases import Rows, Server, gated_connection
from tests.support.simulate.drivers import History
from tests.support.simulate.histories import DATABASE_BEFORE, DATABASE_STEPS
from tests.support.simulate.trials import Schedules, seeds
from tidemill.config.uri import parse_sink_uri
from tidemill.consumer import database, run

__all__ = ["mariadb"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(mariadb: MariaDb) -> Server:
    return Server(mariadb)


def gate(patch: pytest.MonkeyPatch, server: Server) -> None:
    patch.setattr(database, "Connection", gated_connection(server))
    patch.setattr(database, "FIRST_WAIT_S", 0.0001)
    patch.setattr(run, "RETRY_S", (0.0001,))


@pytest.fixture(scope="module")
def schedules(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Schedules[Rows]:
    history = History.of(tmp_path_factory.mktemp("log"), DATABASE_BEFORE, DATABASE_STEPS)
    topic, upstream = sent(history), Upstream(history)

    def body(_: Path) -> Callable[[Actor], None]:
        def consumer(actor: Actor) -> None:
            try:
                consume(MemoryTopics(topic), database.DatabaseTables(parse_sink_uri(server.db.uri), "c"))
            finally:
                server.end(actor)

        server.start_over(())
        return consumer

    with pytest.MonkeyPatch.context() as patch:
        gate(patch, server)
        made = Schedules(tmp_path_factory.mktemp("runs"), body, lambda *_: DatabaseReader(server, upstream))
    assert sum(map(len, made.truth.values())) >= 9
    return made


@pytest.mark.parametrize("seed", seeds(2, 5))
def test_a_schedule(seed: int, schedules: Schedules[Rows], server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    gate(monkeypatch, server)
    schedules.run(seed)
