"""A column's values stay its own in a lake, whatever other column has its name later, and whichever DDLs an event filter keeps back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.lake.lakes import FORCED, assert_equal, deliver, resume, rows_at, shown
from tidemill.sinks.lake.manifest import manifest_at, times
from tidemill.sinks.storage.store import LocalStore

pytestmark = pytest.mark.slow
LAKES = ["delta://{lake}?{more}", "iceberg://c/cdc?warehouse=file://{lake}&catalog-uri=sqlite:///{lake}.db&{more}"]
SILENT = FORCED + '[filter]\n[[filter.event-filters]]\nmatcher = ["*.*"]\nignore-event = ["all ddl"]\n'


def _made(*ddls: str) -> SqlLog:
    sql = SqlLog("CREATE TABLE t (k INT PRIMARY KEY, a INT, b INT)")
    sql.run("INSERT INTO t VALUES (1, 10, 100), (2, 20, 200)", *ddls, "UPDATE t SET k = 3 WHERE k = 1")
    return sql


@pytest.fixture(params=LAKES)
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    (tmp_path / "lake").mkdir()
    return str(request.param).replace("{lake}", f"{tmp_path}/lake")


@pytest.mark.parametrize("toml", [FORCED, SILENT])
@pytest.mark.parametrize(
    "ddls",
    [
        ("ALTER TABLE t DROP COLUMN a", "ALTER TABLE t ADD COLUMN a INT DEFAULT 7"),
        ("ALTER TABLE t DROP COLUMN a", "ALTER TABLE t ADD COLUMN a VARCHAR(9) DEFAULT 'x'"),
        ("ALTER TABLE t RENAME COLUMN a TO c", "ALTER TABLE t ADD COLUMN a INT DEFAULT 7 FIRST"),
        ("ALTER TABLE t RENAME COLUMN a TO c", "ALTER TABLE t RENAME COLUMN b TO a", "ALTER TABLE t RENAME COLUMN c TO b"),
        ("ALTER TABLE t MODIFY COLUMN a VARCHAR(9)",),
    ],
)
def test_values_stay_with_their_column(tmp_path: Path, uri: str, ddls: tuple[str, ...], toml: str) -> None:
    sql, lake = _made(*ddls), tmp_path / "lake"
    deliver(sql.write(tmp_path / "log"), uri.format(more="compact-every=0"), toml=toml)
    assert assert_equal(lake, sql, times(LocalStore(lake))[-1])


def test_a_copy_may_have_another_name(tmp_path: Path, uri: str) -> None:
    sql = _made("ALTER TABLE t CHANGE COLUMN a c VARCHAR(9)", "ALTER TABLE t ADD COLUMN a INT DEFAULT 5")
    deliver(sql.write(tmp_path / "log"), uri.format(more="compact-every=0"))
    assert assert_equal(tmp_path / "lake", sql, times(LocalStore(tmp_path / "lake"))[-1])


def test_a_table_of_changes_keeps_both_columns(tmp_path: Path, uri: str) -> None:
    sql = _made("ALTER TABLE t DROP COLUMN a", "ALTER TABLE t ADD COLUMN a VARCHAR(9)", "INSERT INTO t VALUES (5, 5, 'x')")
    deliver(sql.write(tmp_path / "log"), uri.format(more="mode=changes"))
    at = manifest_at(LocalStore(tmp_path / "lake"), None).tables["app", "t"]
    rows = [{name: row[name] for name in ("k", "a", "a__2")} for row in rows_at(tmp_path / "lake", at) if row["_change_type"] == "insert"]
    assert shown(rows) == shown(
        [
            {"k": 1, "a": None, "a__2": 10},
            {"k": 2, "a": None, "a__2": 20},
            {"k": 3, "a": None, "a__2": None},
            {"k": 5, "a": "x", "a__2": None},
        ]
    )


def test_a_table_of_changes_takes_another_table_of_the_name(tmp_path: Path, uri: str) -> None:
    """The ids of its columns say nothing: they begin at 1 in every table."""
    sql = _made("DROP TABLE t", "CREATE TABLE t (b INT, k INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (7, 1, 70)")
    deliver(sql.write(tmp_path / "log"), uri.format(more="mode=changes"))
    at = manifest_at(LocalStore(tmp_path / "lake"), None).tables["app", "t"]
    rows = [{name: row[name] for name in ("k", "a", "b")} for row in rows_at(tmp_path / "lake", at) if row["_change_type"] == "insert"]
    assert {"k": 1, "a": 70, "b": 7} in rows
    assert {"k": 2, "a": 20, "b": 200} in rows


def test_a_copy_is_known_by_its_new_id_after_a_restart(tmp_path: Path, uri: str) -> None:
    """VARCHAR(9) and VARCHAR(5) are one type in the lake: nothing but the id differs."""
    sql, lake = SqlLog("CREATE TABLE t (k INT PRIMARY KEY, a VARCHAR(9))"), tmp_path / "lake"
    sql.run("INSERT INTO t VALUES (1, 'x'), (2, 'y')", "ALTER TABLE t MODIFY COLUMN a VARCHAR(5)")
    ts = sql.run("UPDATE t SET k = 3 WHERE k = 1")
    log = sql.write(tmp_path / "log", told=True)
    deliver(log, uri.format(more=""), target_ts=ts)
    sql.run("ALTER TABLE t ADD COLUMN b INT", "INSERT INTO t VALUES (4, 'z', 4)")
    resume(sql.write(tmp_path / "log", told=True), uri.format(more=""))
    assert assert_equal(lake, sql, times(LocalStore(lake))[-1])
