"""The database of tests that run with every kind of server: the session's MariaDB, or those that `chosen` names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.servers.chosen import NAMES
from tests.support.servers.mariadb import MariaDb
from tests.support.servers.mariadb import mariadb as mariadb_of_the_session
from tests.support.servers.real_databases import REAL

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
