"""What the tests of the MySQL sink share. Those that take a server run with a real TiDB or MySQL 8 too: see `real_databases`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.servers.mariadb import MariaDb
from tests.support.servers.mariadb import mariadb as mariadb_of_the_session
from tests.support.servers.real_databases import NAMES, REAL

if not NAMES:
    mariadb = mariadb_of_the_session
else:

    @pytest.fixture(scope="session", params=NAMES)
    def mariadb(request: pytest.FixtureRequest) -> Iterator[MariaDb]:
        """The server in MariaDB's place."""
        server = REAL[request.param]
        if server.of_this_machine() is None:
            pytest.skip(f"no {server.program} on PATH and none named by {server.variable}")
        with server() as db:
            yield db


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With other servers only what takes one runs, and of that what is not about MariaDB's own ways."""
    if not NAMES:
        return
    kept = [item for item in items if isinstance(item, pytest.Function) and "mariadb" in item.fixturenames]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept
    for item in kept:
        if (mark := item.get_closest_marker("mariadb")) is not None:
            item.add_marker(pytest.mark.skip(f"MariaDB alone: {mark.args[0]}"))
