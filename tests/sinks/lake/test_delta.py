"""Delta tables hold what the upstream's tables hold, at every resolved ts that a manifest names; each interval is committed once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.changelog.flashback import flash_back
from tests.support.changelog.sqllogs import SqlLog
from tests.support.lake.lakes import (
    Killed,
    assert_equal,
    assert_newest_equal,
    deliver,
    eventful,
    killed_at,
    resume,
    shown,
    version_of,
)
from tests.support.lake.read_delta import log_of, rows_of
from tidemill.changelog.storage.state_file import StateFile
from tidemill.errors import SchemaError, SinkError, SinkUnavailable
from tidemill.sinks.base import no_fence_check
from tidemill.sinks.lake.base import Stamp
from tidemill.sinks.lake.control import lake_ddl
from tidemill.sinks.lake.delta import DeltaTables
from tidemill.sinks.lake.manifest import HEAD, read_head, times
from tidemill.sinks.lake.shapes import OP, lake_table
from tidemill.sinks.storage.store import LocalStore
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.events import DdlEvent

pytestmark = pytest.mark.slow


def test_tables_equal_the_upstreams_at_every_resolved_ts(tmp_path: Path) -> None:
    sql = eventful()
    log, lake = sql.write(tmp_path / "log", partitions=2), tmp_path / "lake"
    deliver(log, f"delta://{lake}?compact-every=2")
    assert sum(assert_equal(lake, sql, ts) for ts in times(LocalStore(lake))) > 30
    assert not [*(lake / ".tidemill" / "tries").iterdir()]


def test_a_change_table_has_every_image(tmp_path: Path) -> None:
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    sql.run("INSERT INTO t VALUES (1, 1)", "UPDATE t SET a = 2", "UPDATE t SET id = 5", "ALTER TABLE t ADD COLUMN b INT")
    sql.run("DELETE FROM t", "TRUNCATE TABLE t", "ALTER TABLE t DROP COLUMN a", "INSERT INTO t VALUES (6, 6)")
    deliver(sql.write(tmp_path / "log"), f"delta://{tmp_path}/lake?mode=changes")
    found = sorted(
        rows_of(tmp_path / "lake/app/t"), key=lambda row: (row["_commit_ts"], row["_change_type"] not in ("delete", "update_preimage"))
    )
    assert [(row["_change_type"], row["id"], row["a"], row["b"]) for row in found] == [
        ("insert", 1, 1, None),
        ("update_preimage", 1, 1, None),
        ("update_postimage", 1, 2, None),
        ("delete", 1, 2, None),
        ("insert", 5, 2, None),
        ("delete", 5, 2, None),
        ("insert", 6, None, 6),
    ]
    assert all(row["_start_ts"] < row["_commit_ts"] for row in found)


def _commits(lake: Path) -> list[tuple[str, int]]:
    """Table and resolved ts of each commit of rows."""
    found = []
    for table in sorted(lake.glob("app/*")):
        for commit in log_of(table):
            found += [(table.name, action["txn"]["version"]) for action in commit if "txn" in action]
    return found


@pytest.mark.parametrize("kill_at", range(12))
def test_a_driver_killed_anywhere_delivers_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill_at: int) -> None:
    """The process ends before the n-th step: a commit, a note, the manifest or the head."""
    sql = SqlLog("CREATE TABLE a (id INT PRIMARY KEY, v INT)", "CREATE TABLE b (id INT PRIMARY KEY, v INT)")
    sql.run("BEGIN", "INSERT INTO a VALUES (1, 1), (2, 2)", "INSERT INTO b VALUES (1, 1)", "COMMIT", "RENAME TABLE a TO c", "DELETE FROM b")
    sql.run("INSERT INTO c VALUES (3, 3)")
    log, lake = sql.write(tmp_path / "log"), tmp_path / "lake"
    with monkeypatch.context() as patch:
        of_tables = [(DeltaTables, name) for name in ("shape", "merge", "rename", "empty", "version")]
        killed_at(patch, kill_at + 1, [*of_tables, (StateFile, "change")])
        patch.setattr("tidemill.sinks.lake.driver.sink._AT_ONCE", 1)
        with pytest.raises(Killed):
            deliver(log, f"delta://{lake}")
    resume(log, f"delta://{lake}")
    assert_newest_equal(lake, sql)
    commits = _commits(lake)
    assert len(commits) == len(set(commits))


def test_a_process_killed_before_the_commit_leaves_nothing_visible(tmp_path: Path) -> None:
    sql = SqlLog("CREATE TABLE a (id INT PRIMARY KEY)")
    sql.run("INSERT INTO a VALUES (1), (2)")
    log, lake = sql.write(tmp_path / "log"), tmp_path / "lake"
    dying = f"""
import os, signal
from tests.support.lake.lakes import deliver
from tidemill.sinks.lake.delta import DeltaTables
DeltaTables.merge = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
deliver({log!r}, "delta://{lake}")
"""
    assert subprocess.run([sys.executable, "-c", dying], cwd=Path(__file__).parents[3], check=False).returncode == -signal.SIGKILL
    assert [*(lake / ".tidemill/tries").rglob("*.part")]
    assert not (lake / HEAD).exists()
    resume(log, f"delta://{lake}")
    assert shown(rows_of(lake / "app/a")) == shown([{"id": 1}, {"id": 2}])


def test_a_second_drivers_commit_fails(tmp_path: Path) -> None:
    """Another driver has committed the interval between the look at the table and the commit."""

    want = lake_table(version_of(SqlLog("CREATE TABLE a (id INT PRIMARY KEY)"), "a"))
    store = LocalStore(tmp_path)
    mine, theirs = (DeltaTables(str(tmp_path), store, None, 1 << 20) for _ in range(2))
    stamp = Stamp("f", 5, 1, no_fence_check)
    rows = pa.table({"id": pa.array([1], pa.int32()), OP: pa.array([0], pa.int8())})
    mine.shape("app/a", want, stamp)

    def meanwhile(*, now: bool = False) -> None:
        theirs.merge("app/a", want, rows, Stamp("f", 5, 2, no_fence_check))

    with pytest.raises(SinkUnavailable, match="another writer"):
        mine.merge("app/a", want, rows, Stamp("f", 5, 1, meanwhile))
    assert mine.delivered("app/a", "f") == 5
    assert rows_of(tmp_path / "app/a") == [{"id": 1}]


def test_what_no_change_describes_is_refused() -> None:
    event = DdlEvent(1, 1, 1, 1, 0, Action.FLASHBACK_CLUSTER, "", "", "", "", 0, "FLASHBACK CLUSTER TO TIMESTAMP '2024-01-01'", "", False)
    with pytest.raises(SinkError, match="rows become those of an earlier time") as refused:
        lake_ddl(event, history=False)
    assert "event filter" in refused.value.hint


def test_flashback_cluster_leaves_the_lake_whole_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    sql.run("INSERT INTO t VALUES (1, 1)", "UPDATE t SET a = 2")
    lake = tmp_path / "lake"
    deliver(sql.write(tmp_path / "log"), f"delta://{lake}")
    before = read_head(LocalStore(lake))
    at = sql.run("INSERT INTO t VALUES (2, 2)")
    flash_back(monkeypatch, at)
    with pytest.raises(SchemaError, match=r"(?s)FLASHBACK CLUSTER \(DDL job .*start a new log and changefeed after it"):
        resume(sql.write(tmp_path / "log"), f"delta://{lake}")
    assert read_head(LocalStore(lake)).resolved_ts == before.resolved_ts
    assert_newest_equal(lake, sql)
    assert rows_of(lake / "app/t") == [{"id": 1, "a": 2}]


def test_a_key_that_the_lakes_type_cannot_have_is_named(tmp_path: Path) -> None:
    sql = SqlLog("CREATE TABLE z (d DATE PRIMARY KEY, v INT)")
    sql.run("INSERT INTO z VALUES ('0000-00-00', 1)")
    with pytest.raises(SinkError, match=r"app\.z: a row's key column d .* v = 1"):
        deliver(sql.write(tmp_path / "log"), f"delta://{tmp_path}/lake")


def test_columns_and_names_are_those_that_the_settings_choose(tmp_path: Path) -> None:
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY, secret INT, a INT)")
    sql.run("INSERT INTO t VALUES (1, 2, 3)", "ALTER TABLE t ADD COLUMN b INT", "UPDATE t SET b = 4, secret = 5")
    toml = """
[sink]
column-selectors = [{ matcher = ["app.t"], columns = ["*", "!secret"] }]
dispatchers = [{ matcher = ["app.*"], target-schema = "lake", target-table = "{table}_copy" }]
"""
    deliver(sql.write(tmp_path / "log"), f"delta://{tmp_path}/lake", toml=toml)
    assert rows_of(tmp_path / "lake/lake/t_copy") == [{"id": 1, "a": 3, "b": 4}]
