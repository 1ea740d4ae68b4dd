"""RENAME TABLE of several tables runs as the one statement that it was upstream: names may go round in a ring."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.database_runs import delivered, hurried, wrong
from tests.support.servers.mariadb import MariaDb

RENAMES = {
    "swap": "rename table a to t, b to a, t to b",
    "ring of three": "rename table a to t, b to a, c to b, t to c",
    "chain": "rename table a to old_a, b to a, c to b",
    "chain through a spare name": "rename table b to t, a to b, t to d",
    "two rings": "rename table a to t, b to a, t to b, c to t, d2 to c, t to d2",
    "into another database and back": "rename table a to other.t, b to a, other.t to b",
    "swap across databases": "rename table a to other.t, other.o to a, other.t to other.o",
    "odd names": "rename table `w x-1` to t, c to `w x-1`, t to c",
}
ROWS = ("a", "b", "c", "d2", "`w x-1`", "other.o")


@pytest.mark.slow
@pytest.mark.parametrize("statement", RENAMES.values(), ids=RENAMES.keys())
def test_names_that_change_places(mariadb: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    hurried(monkeypatch)
    mariadb.clear()
    sql = SqlLog()
    mariadb.run("CREATE DATABASE app")
    sql.run("create database other", *(f"create table {name} (k int primary key, v int)" for name in ROWS))
    sql.run(*(f"insert into {name} values ({number}, {number})" for number, name in enumerate(ROWS)))
    sql.run(statement)
    sql.run(*(f"insert into {schema}.`{name}` values (100, 0)" for schema, name in _tables(sql)))
    delivered(sql.write(tmp_path / "log"), mariadb.uri)
    assert not list(wrong(mariadb, sql))


def _tables(sql: SqlLog) -> list[tuple[str, str]]:
    return [(schema, name.replace("`", "``")) for schema, name in sql.tables_at(sql.run())]
