"""A lake in a bucket, and what `tidemill lake` says of one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.runs import tidemill
from tests.support.lake.lakes import deliver, expected, shown
from tests.support.lake.read_delta import rows_of
from tests.support.servers.s3 import make_bucket, objects, s3_server
from tidemill.errors import SinkError
from tidemill.sinks.lake.manifest import Manifest, file_of, manifest_at, read_head, times, write_manifest
from tidemill.sinks.lake.open import lake_uri, store_of
from tidemill.sinks.storage.store import LocalStore

__all__ = ["s3_server"]
pytestmark = pytest.mark.slow


def _made() -> SqlLog:
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    sql.run("INSERT INTO t VALUES (1, 1), (2, 2)", "CREATE TABLE u (id INT PRIMARY KEY)", "UPDATE t SET a = 7 WHERE id = 2")
    sql.run("INSERT INTO u VALUES (1)", "ALTER TABLE t ADD COLUMN b INT")
    return sql


def test_a_bucket_holds_what_a_folder_does(s3_server: str, tmp_path: Path) -> None:
    make_bucket(s3_server, "lake")
    uri = f"delta+s3://lake/a/b?endpoint={s3_server}&access-key=test&secret-access-key=test&region=us-east-1"
    sql = _made()
    log = sql.write(tmp_path / "log")
    deliver(log, uri)
    store = store_of(lake_uri(uri))
    newest = manifest_at(store, None)
    assert not write_manifest(store, Manifest(times(store)[-1])), "there is one"
    for name, data in objects(s3_server, "lake/a/b").items():
        target = tmp_path / "copy" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    for name, at in newest.tables.items():
        assert shown(rows_of(tmp_path / "copy" / at.place, at.version)) == expected(sql.tables_at(newest.resolved_ts)[name])
    deliver(log, uri)  # a replay replaces what an earlier one wrote
    assert manifest_at(store, None).tables.keys() == newest.tables.keys()


def test_lake_shows_verifies_and_vacuums(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql, lake = _made(), tmp_path / "lake"
    deliver(sql.write(tmp_path / "log"), f"delta://{lake}")
    code, said, _ = tidemill(capsys, "lake", "show", lake, "--output", "json")
    head = read_head(LocalStore(lake))
    found = json.loads(said)
    assert (code, found["resolved_ts"]) == (0, head.resolved_ts)
    assert [(one["table"], one["rows"], one["files"]) for one in found["tables"]] == [("t", 2, 1), ("u", 1, 1)]
    earlier = times(LocalStore(lake))[1]
    assert f"resolved ts {earlier}" in tidemill(capsys, "lake", "show", lake, "--at", earlier)[1]
    assert tidemill(capsys, "lake", "verify", lake, "--all")[0] == 0

    code, said, _ = tidemill(capsys, "lake", "vacuum", lake, "--retention", "0h", "--dry-run")
    assert (code, said.split(" ")[0]) == (0, str(len(times(LocalStore(lake))) - 1))
    assert tidemill(capsys, "lake", "vacuum", lake, "--retention", "0h")[0] == 0
    assert times(LocalStore(lake)) == [head.manifest]
    assert tidemill(capsys, "lake", "verify", lake)[0] == 0
    next((lake / "app" / "u").glob("*.parquet")).unlink()
    code, said, _ = tidemill(capsys, "lake", "verify", lake)
    assert code == 1
    assert "app.u: data file" in said


def test_errors_say_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "has no tables of Tidemill" in tidemill(capsys, "lake", "show", tmp_path)[2]
    deliver(_made().write(tmp_path / "log"), f"delta://{tmp_path}/lake")
    store = LocalStore(tmp_path / "lake")
    with pytest.raises(SinkError, match="not yet of"):
        manifest_at(store, read_head(store).resolved_ts + 1)
    with pytest.raises(SinkError, match="nothing is known of"):
        manifest_at(store, times(store)[0] - 1)
    store.stage(file_of(times(store)[-1]), b"{")
    assert "is not JSON" in tidemill(capsys, "lake", "show", tmp_path / "lake")[2]
