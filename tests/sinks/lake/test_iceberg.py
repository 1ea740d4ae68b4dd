"""Iceberg tables hold what the upstream's tables hold, at every resolved ts that a manifest names. They are read by pyiceberg's scans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.runs import tidemill
from tests.support.lake.lakes import Killed, deliver, eventful, expected, killed_at, rows_at, shown, version_of
from tidemill.config.lake import LakeOptions
from tidemill.errors import SinkUnavailable
from tidemill.sinks.base import no_fence_check
from tidemill.sinks.lake.base import Stamp
from tidemill.sinks.lake.driver import LakeDriverSink
from tidemill.sinks.lake.iceberg import IcebergTables, without
from tidemill.sinks.lake.manifest import manifest_at, read_manifest, times
from tidemill.sinks.lake.shapes import OP, lake_table
from tidemill.sinks.storage.store import LocalStore

pytestmark = pytest.mark.slow


@pytest.fixture
def uri(tmp_path: Path) -> str:
    (tmp_path / "lake").mkdir()
    return f"iceberg://c/cdc?warehouse=file://{tmp_path}/lake&catalog-uri=sqlite:///{tmp_path}/catalog.db"


def test_tables_equal_the_upstreams_at_every_resolved_ts(tmp_path: Path, uri: str) -> None:
    sql, store = eventful(), LocalStore(tmp_path / "lake")
    deliver(sql.write(tmp_path / "log", partitions=2), f"{uri}&compact-every=2")
    seen: set[tuple[str, int, str]] = set()
    for ts in times(store):
        truth = sql.tables_at(ts)
        for name, at in read_manifest(store, ts).tables.items():
            place = at.place, at.version, at.metadata
            if place not in seen:
                assert shown(rows_at(tmp_path / "lake", at)) == expected(truth[name]), (name, ts)
                assert at.place == f"cdc.{name[0]}.{name[1]}"
            seen.add(place)
    assert len(seen) > 20


@pytest.mark.parametrize("kill_at", [1, 3, 5, 7])
def test_a_driver_killed_between_commits_delivers_once(tmp_path: Path, uri: str, kill_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = SqlLog("CREATE TABLE a (id INT PRIMARY KEY, v INT)", "CREATE TABLE b (id INT PRIMARY KEY, v INT)")
    sql.run("BEGIN", "INSERT INTO a VALUES (1, 1), (2, 2)", "INSERT INTO b VALUES (1, 1)", "COMMIT", "RENAME TABLE a TO c", "DELETE FROM b")
    sql.run("INSERT INTO c VALUES (3, 3)", "TRUNCATE TABLE b", "DROP TABLE b")
    log = sql.write(tmp_path / "log")
    with monkeypatch.context() as patch:
        killed_at(patch, kill_at, [(IcebergTables, name) for name in ("merge", "rename", "empty", "drop", "version")])
        with pytest.raises(Killed):
            deliver(log, uri)
    monkeypatch.setattr(LakeDriverSink, "_clear", lambda self: None)  # go on with what is there
    deliver(log, uri)
    newest = manifest_at(LocalStore(tmp_path / "lake"), None)
    assert {name: shown(rows_at(tmp_path / "lake", at)) for name, at in newest.tables.items()} == {
        ("app", "c"): expected(_at_end(sql, newest.resolved_ts))
    }


def _at_end(sql: SqlLog, ts: int) -> Any:
    return sql.tables_at(ts)["app", "c"]


def test_a_second_drivers_commit_fails(tmp_path: Path) -> None:
    options = LakeOptions(catalog="c", catalog_uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/lake")
    want = lake_table(version_of(SqlLog("CREATE TABLE a (id INT PRIMARY KEY)"), "a"))
    mine, theirs = IcebergTables(options, None), IcebergTables(options, None)
    rows = pa.table({"id": pa.array([1], pa.int32()), OP: pa.array([0], pa.int8())})
    mine.shape("app.a", want, Stamp("f", 5, 1, no_fence_check))

    def meanwhile(*, now: bool = False) -> None:
        theirs.merge("app.a", want, rows, Stamp("f", 5, 2, no_fence_check))

    with pytest.raises(SinkUnavailable, match="another writer"):
        mine.merge("app.a", want, rows, Stamp("f", 5, 1, meanwhile))
    assert mine.delivered("app.a", "f") == 5
    assert shown(rows_at(tmp_path / "lake", mine.version("app", "a", 1, "app.a"))) == shown([{"id": 1}])


def test_a_change_table_grows(tmp_path: Path, uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    sql.run("INSERT INTO t VALUES (1, 1)", "UPDATE t SET a = 2", "DELETE FROM t")
    deliver(sql.write(tmp_path / "log"), f"{uri}&mode=changes")
    at = manifest_at(LocalStore(tmp_path / "lake"), None).tables["app", "t"]
    assert sorted(row["_change_type"] for row in rows_at(tmp_path / "lake", at)) == [
        "delete",
        "insert",
        "update_postimage",
        "update_preimage",
    ]
    assert tidemill(capsys, "lake", "show", uri)[0] == 0
    assert "is for Delta tables" in tidemill(capsys, "lake", "vacuum", uri)[2]


def test_rows_go_by_keys_of_several_columns() -> None:
    rows = pa.table({"a": [1, 1, 2, 3], "b": ["x", "y", "x", "z"], "v": [[1.0], [2.0], None, [4.0]]})
    gone = pa.table({"b": ["y", "x", "q"], "a": [1, 2, 9]})
    assert without(rows, gone, ("a", "b")).to_pylist() == [{"a": 1, "b": "x", "v": [1.0]}, {"a": 3, "b": "z", "v": [4.0]}]
