"""A real MariaDB for tests: one a session in a temporary folder, on a free port, with little memory, stopped at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from tidemill.playground.programs.mariadb import MariaDbServer


class MariaDb(MariaDbServer):
    """A server with what tests ask of it."""

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def run(self, *statements: str) -> None:
        """Run statements."""
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def clear(self) -> None:
        """Drop all databases but the server's own."""
        own = ("mysql", "information_schema", "performance_schema", "metrics_schema", "sys")
        self.run(*[f"DROP DATABASE `{name}`" for (name,) in self.rows("SHOW DATABASES") if name.lower() not in own])


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    """Import it into a test module (or conftest) to use it; `clear` it first."""
    with MariaDb() as server:
        yield server
