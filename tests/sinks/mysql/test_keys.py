"""A row is found by its key, whatever the key's type, and without a key by all that it has: random histories, with a real MariaDB as the
judge. `TIDEMILL_FUZZ=N` makes N times as many."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.changelog.key_histories import KINDS, histories
from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.database_runs import delivered, hurried, wrong
from tests.support.servers.mariadb import MariaDb
from tests.support.thorough import FUZZ

SEEDS = range(FUZZ)
SETTINGS = (
    "max-txn-row=1",
    "max-txn-row=1&batch-dml-enable=false",
    "max-txn-row=1&safe-mode=true",
    "worker-count=1&transaction-atomicity=table",
    "transaction-atomicity=global&max-txn-row=1",
    "",
)


def log_of(folder: Path, *statements: str) -> tuple[SqlLog, str]:
    sql = SqlLog()
    sql.run(*statements)
    return sql, sql.write(folder / "log")


def held(db: MariaDb, log: str, parameters: str = "max-txn-row=1") -> None:
    db.clear()
    db.run("CREATE DATABASE app CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    delivered(log, f"{db.uri}?{parameters}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_every_type_as_every_kind_of_key_in_all_settings(
    mariadb: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The tables are made once, by a log of their own: each takes longer than its rows."""
    hurried(monkeypatch)
    statements = [*histories(seed)]
    creates = [one for one in statements if one.startswith("CREATE")]
    sql, tables = log_of(tmp_path / "tables", *creates)
    sql.start_ts = sql.run()
    sql.run(*(one for one in statements if not one.startswith("CREATE")))
    log = sql.write(tmp_path / "rows")
    held(mariadb, tables)
    names = [name for (name,) in mariadb.rows("SELECT table_name FROM information_schema.tables WHERE table_schema = 'app'")]
    assert len(names) == len(creates)
    for parameters in SETTINGS:
        mariadb.run(*(f"DELETE FROM app.{name}" for name in names))
        delivered(log, f"{mariadb.uri}?{parameters}")
        assert [*wrong(mariadb, sql)] == [], parameters


@pytest.mark.parametrize("name", ["f4", "st64"])
def test_a_key_whose_literal_is_compared_otherwise(mariadb: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    hurried(monkeypatch)
    sql, log = log_of(tmp_path, *histories(1, [kind for kind in KINDS if kind.name == name]))
    held(mariadb, log)
    assert [*wrong(mariadb, sql)] == []


def test_a_wide_bit_is_updated(mariadb: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TiDB reads its bytes in the wrong order where it is set to VALUES()."""
    hurried(monkeypatch)
    sql, log = log_of(
        tmp_path,
        "CREATE TABLE app.b (id INT PRIMARY KEY, t VARCHAR(9), b BIT(64), c BIT(56))",
        *(f"INSERT INTO app.b VALUES ({n}, 'a', 1, 1)" for n in (1, 2)),
        "UPDATE app.b SET b = 9007199254740993 + id, c = 9007199254740993 + id, t = 'it''s, b'",
    )
    held(mariadb, log)
    assert [*wrong(mariadb, sql)] == []


@pytest.mark.parametrize(
    ("kind", "goes", "stays"),
    [
        ("VARCHAR(9)", "'a '", "'a'"),
        ("VARCHAR(9) COLLATE utf8mb4_general_ci", "'A'", "'a'"),
        ("TEXT COLLATE utf8mb4_general_ci", "'A'", "'a'"),
        ("FLOAT", "16777216", "16777218"),
    ],
)
def test_without_a_key_rows_that_are_alike_are_told_apart(
    mariadb: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, goes: str, stays: str
) -> None:
    """The row that goes lies behind the other one downstream, before it upstream."""
    hurried(monkeypatch)
    sql, log = log_of(
        tmp_path,
        f"CREATE TABLE app.n (k {kind}, v INT)",
        f"INSERT INTO app.n VALUES ({goes}, 2)",
        f"INSERT INTO app.n VALUES ({stays}, 1)",
        "UPDATE app.n SET v = 1 WHERE v = 2",
        "DELETE FROM app.n WHERE v = 1 LIMIT 1",
    )
    held(mariadb, log)
    assert [*wrong(mariadb, sql)] == []
