"""Rows that leave or change places with their partitions, without a change for any of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.lake.lakes import Killed, assert_equal, assert_newest_equal, deliver, killed_at, resume
from tidemill.changelog.storage.state_file import StateFile
from tidemill.errors import SinkError
from tidemill.sinks.lake.delta import DeltaTables
from tidemill.sinks.lake.driver import LakeDriverSink
from tidemill.sinks.lake.manifest import times
from tidemill.sinks.storage.store import LocalStore

pytestmark = pytest.mark.slow

RANGE = (
    "PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (5), PARTITION b VALUES LESS THAN (9), PARTITION c VALUES LESS THAN MAXVALUE)"
)
STATEMENTS = (
    f"CREATE TABLE r (id INT PRIMARY KEY, v VARCHAR(9)) {RANGE}",
    "CREATE TABLE plain (id INT PRIMARY KEY, v VARCHAR(9))",
    """CREATE TABLE d (id INT, at DATETIME(3), v INT, PRIMARY KEY (id, at)) PARTITION BY RANGE (TO_DAYS(at))
 (PARTITION a VALUES LESS THAN (TO_DAYS('2024-01-01')), PARTITION b VALUES LESS THAN (TO_DAYS('2025-01-01')))""",
    """CREATE TABLE c (a DATE, b VARCHAR(9), v INT, PRIMARY KEY (a, b)) PARTITION BY RANGE COLUMNS (a, b)
 (PARTITION a VALUES LESS THAN ('2024-01-01', 'k'), PARTITION b VALUES LESS THAN ('2025-01-01', 'k'),
  PARTITION c VALUES LESS THAN (MAXVALUE, MAXVALUE))""",
    "CREATE TABLE l (id INT, k INT) PARTITION BY LIST (k) (PARTITION a VALUES IN (1, 2), PARTITION b VALUES IN (3, NULL))",
    "CREATE TABLE h (id BIGINT UNSIGNED PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 3",
    "INSERT INTO r VALUES (1, 'x'), (4, 'x'), (5, 'x'), (8, 'x'), (9, 'x')",
    "INSERT INTO plain VALUES (6, 'p'), (7, 'p')",
    "INSERT INTO d VALUES (1, '2023-12-31 23:59:59.999', 1), (2, '2024-01-01 00:00:00', 2), (3, '2024-06-01 00:00:00.5', 3)",
    "INSERT INTO c VALUES ('2023-05-05', 'z', 1), ('2024-01-01', 'j', 2), ('2024-01-01', 'k', 3)",
    "INSERT INTO c VALUES ('2024-02-02', 'a', 4), ('2026-01-01', 'a', 5)",
    "INSERT INTO l VALUES (1, 1), (2, 2), (3, 3), (4, NULL), (4, NULL)",
    "INSERT INTO h VALUES (0), (1), (2), (3), (4), (5), (18446744073709551615)",
    "ALTER TABLE r TRUNCATE PARTITION a",
    "INSERT INTO r VALUES (2, 'y')",
    "ALTER TABLE r EXCHANGE PARTITION b WITH TABLE plain",
    "UPDATE r SET v = 'q' WHERE id = 6",
    "UPDATE plain SET v = 'q' WHERE id = 8",
    "INSERT INTO plain VALUES (100, 'n')",
    "ALTER TABLE r REORGANIZE PARTITION a, b INTO (PARTITION n VALUES LESS THAN (7), PARTITION m VALUES LESS THAN (9))",
    "ALTER TABLE r DROP PARTITION n",
    "INSERT INTO r VALUES (3, 'z')",
    "ALTER TABLE d DROP PARTITION a",
    "ALTER TABLE d ADD COLUMN w INT DEFAULT 4",
    "ALTER TABLE d TRUNCATE PARTITION b",
    "ALTER TABLE c TRUNCATE PARTITION b",
    "ALTER TABLE l TRUNCATE PARTITION b",
    "INSERT INTO l VALUES (9, 3)",
    "ALTER TABLE l DROP PARTITION a",
    "ALTER TABLE h TRUNCATE PARTITION p1",
    "TRUNCATE TABLE plain",
    "INSERT INTO plain VALUES (7, 'new')",
    "FLASHBACK TABLE plain TO old",
    "INSERT INTO old VALUES (200, 'n')",
    "DROP TABLE r",
    "CREATE TABLE r (z INT PRIMARY KEY)",
    "INSERT INTO r VALUES (1)",
    "DROP TABLE r",
    "DROP TABLE d",
    "RECOVER TABLE d",
    "INSERT INTO d VALUES (7, '2024-03-03', 7, 7)",
    "DROP DATABASE app",
    "FLASHBACK DATABASE app",
    "INSERT INTO app.d VALUES (8, '2024-03-03', 7, 7)",
    "UPDATE app.old SET v = 'back' WHERE id = 100",
)  # fmt: skip


def _made(*statements: str) -> SqlLog:
    sql = SqlLog()
    sql.run(*statements)
    return sql


@pytest.mark.parametrize(
    "uri", ["delta://{lake}?compact-every=2", "iceberg://c/cdc?warehouse=file://{lake}&catalog-uri=sqlite:///{lake}.db"]
)
def test_tables_equal_the_upstreams_after_each_ddl(tmp_path: Path, uri: str) -> None:
    sql, lake = _made(*STATEMENTS), tmp_path / "lake"
    lake.mkdir()
    deliver(sql.write(tmp_path / "log"), uri.format(lake=lake))
    assert sum(assert_equal(lake, sql, ts) for ts in times(LocalStore(lake))) > 100


@pytest.mark.parametrize("step", range(1, 9))
def test_a_driver_killed_in_an_exchange_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    sql = _made(
        f"CREATE TABLE r (id INT PRIMARY KEY) {RANGE}",
        "CREATE TABLE plain (id INT PRIMARY KEY)",
        "INSERT INTO r VALUES (1), (5), (6)",
        "INSERT INTO plain VALUES (6), (7)",
        "ALTER TABLE r EXCHANGE PARTITION b WITH TABLE plain",
        "INSERT INTO plain VALUES (8)",
    )
    log, lake = sql.write(tmp_path / "log"), tmp_path / "lake"
    exchange = LakeDriverSink._exchange

    def dying(self: LakeDriverSink, *given: object) -> None:
        with monkeypatch.context() as inner:
            killed_at(inner, step, [(DeltaTables, "merge"), (DeltaTables, "read"), (StateFile, "change"), (LocalStore, "read")])
            exchange(self, *given)  # type: ignore[arg-type]
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(LakeDriverSink, "_exchange", dying)
        with pytest.raises(Killed):
            deliver(log, f"delta://{lake}")
    resume(log, f"delta://{lake}")
    assert_newest_equal(lake, sql)
    assert not (lake / ".tidemill/exchange").exists() or not [*(lake / ".tidemill/exchange").iterdir()]


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        (
            (
                "CREATE TABLE p (k VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY) PARTITION BY RANGE COLUMNS (k) "
                "(PARTITION a VALUES LESS THAN ('m'), PARTITION b VALUES LESS THAN ('z'))",
                "ALTER TABLE p DROP PARTITION a",
            ),
            "collation utf8mb4_general_ci",
        ),
        (
            (
                f"CREATE TABLE p (id INT) {RANGE}",
                "CREATE TABLE q (id INT)",
                "ALTER TABLE p EXCHANGE PARTITION a WITH TABLE q",
            ),
            "hidden handles",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_told_is_refused(tmp_path: Path, statements: tuple[str, ...], why: str) -> None:
    with pytest.raises(SinkError, match=why) as refused:
        deliver(_made(*statements).write(tmp_path / "log"), f"delta://{tmp_path}/lake")
    assert "event filter" in refused.value.hint


def test_an_exchange_with_a_table_outside_is_refused(tmp_path: Path) -> None:
    sql = _made(
        f"CREATE TABLE p (id INT PRIMARY KEY) {RANGE}",
        "CREATE TABLE q (id INT PRIMARY KEY)",
        "ALTER TABLE p EXCHANGE PARTITION a WITH TABLE q",
    )
    with pytest.raises(SinkError, match=r"which is not in"):
        deliver(sql.write(tmp_path / "log"), f"delta://{tmp_path}/lake", toml="[filter]\nrules = ['app.p']\n")
