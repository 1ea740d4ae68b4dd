"""A changefeed dies in the middle, with its cluster: the log, perhaps on S3, and the database are all that is left."""

from __future__ import annotations

import ast
from datetime import UTC
from pathlib import Path

import pyarrow.fs
import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.consumer.upstreams import truth
from tests.support.delivery.mysql_tables import differences
from tests.support.delivery.runs import tidemill
from tests.support.servers.databases import mariadb
from tests.support.servers.mariadb import MariaDb
from tests.support.servers.s3 import filesystem, make_bucket, s3_server
from tidemill.changefeed.redo import location_of, take_over
from tidemill.changefeed.replay import replay
from tidemill.changelog.feeds import register
from tidemill.changelog.storage.open import LocalStorage
from tidemill.config.file import parse_config
from tidemill.delivery.epoch_fence import Fence
from tidemill.delivery.inputs.table_router import Settings
from tidemill.delivery.machine.retry import RetryPolicy
from tidemill.errors import Fenced, LogRefused, SinkError
from tidemill.sinks.mysql.driver import MysqlDriverSink

__all__ = ["mariadb", "s3_server"]

pytestmark = pytest.mark.slow

Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def db(mariadb: MariaDb) -> MariaDb:
    mariadb.clear()
    mariadb.run("CREATE DATABASE app")
    return mariadb


class Upstream:
    """A cluster, up to its end. `middle`: where its changefeed was when all was well."""

    def __init__(self, folder: Path) -> None:
        self.sql = SqlLog()
        self.sql.run("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)", "CREATE TABLE u (id INT PRIMARY KEY, v VARCHAR(20))")
        self.middle = self.sql.run("INSERT INTO t VALUES (1, 1, 1), (2, 2, 2)", "INSERT INTO u VALUES (1, 'one')")
        self.sql.run("UPDATE t SET a = 5, b = 6 WHERE id = 1", "INSERT INTO t VALUES (3, 3, 3)", "DELETE FROM u WHERE id = 1")
        self.sql.run("ALTER TABLE t DROP COLUMN b", "INSERT INTO t VALUES (4, 4)", "INSERT INTO u VALUES (2, 'two')")
        self.sql.run("CREATE TABLE w (id INT PRIMARY KEY)", "INSERT INTO w VALUES (7)")
        self.log = self.sql.write(folder / "log")

    def run(self, db: MariaDb, target_ts: int | None = None) -> None:
        """A changefeed `f` that ends at a ts."""
        config = parse_config("")
        replay(self.log, Settings("f", config.sink_uri(db.uri), config, UTC), target_ts=target_ts)

    def differences(self, db: MariaDb) -> list[str]:
        tables = self.sql.tables_at(self.sql.run())
        return [str(one) for one in differences(db, truth(tables))]  # type: ignore[arg-type]


def test_the_rest_of_the_log_is_applied(db: MariaDb, tmp_path: Path, capsys: Capsys) -> None:
    upstream = Upstream(tmp_path)
    upstream.run(db, upstream.middle)
    register(upstream.log, "f", upstream.middle)
    assert upstream.differences(db)
    code, out, _ = tidemill(capsys, "redo", "meta", "--log", upstream.log)
    assert (code, out.split(",")[0]) == (0, f"checkpoint-ts:{upstream.middle}")
    code, out, err = tidemill(capsys, "redo", "apply", "--log", upstream.log, "--sink-uri", db.uri, "--tmp-dir", tmp_path / "tmp")
    assert code == 0, err
    assert out.splitlines()[-1] == "Apply redo log successfully"
    assert upstream.differences(db) == []
    assert tidemill(capsys, "redo", "apply", "--log", upstream.log, "--sink-uri", db.uri)[0] == 0  # nothing is left to do
    assert tidemill(capsys, "diff", "--log", upstream.log, "--sink-uri", db.uri)[0] == 0


@pytest.mark.parametrize("ends", ["begin_batch", "ddl", "finish_batch"])
def test_an_interval_that_was_begun_is_ended(
    db: MariaDb, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """The rows are there, the DDL was run, but nobody knows: rows from before it would not fit any more."""
    upstream = Upstream(tmp_path)
    upstream.run(db, upstream.middle)
    monkeypatch.setattr("tidemill.changefeed.replay.RETRY", RetryPolicy(total_s=0))
    done = getattr(MysqlDriverSink, ends)

    def dies(self: MysqlDriverSink, *given: object) -> None:
        if ends != "finish_batch":
            done(self, *given)
        raise SinkError("the process is killed")

    with monkeypatch.context() as death:
        death.setattr(MysqlDriverSink, ends, dies)
        with pytest.raises(SinkError, match="is killed"):
            _go_on(upstream, db, capsys)
    code, _, err = tidemill(capsys, "redo", "apply", "--log", upstream.log, "--sink-uri", db.uri, "-c", "f")
    assert code == 0, err
    assert upstream.differences(db) == []


def _go_on(upstream: Upstream, db: MariaDb, capsys: Capsys) -> None:
    code, _, err = tidemill(capsys, "redo", "apply", "--log", upstream.log, "--sink-uri", db.uri)
    assert code == 1
    raise SinkError(err)


def test_the_log_is_on_s3_and_the_changefeed_is_unknown_to_the_database(
    db: MariaDb, tmp_path: Path, capsys: Capsys, s3_server: str
) -> None:
    upstream = Upstream(tmp_path)
    make_bucket(s3_server, "logs")
    pyarrow.fs.copy_files(upstream.log, "logs/redo", destination_filesystem=filesystem(s3_server))
    storage = f"s3://logs/redo?endpoint={s3_server}&access-key=test&secret-access-key=test&force-path-style=true"
    code, _, err = tidemill(capsys, "redo", "apply", "--storage", storage, "--sink-uri", db.uri, "-c", "f")
    assert code == 1
    assert "neither the database nor the log knows how far changefeed f had written" in err
    start = upstream.sql.start_ts
    code, _, err = tidemill(capsys, "redo", "apply", "--storage", storage, "--sink-uri", db.uri, "-c", "f", "--start-ts", start)
    assert code == 0, err
    assert upstream.differences(db) == []


def test_only_databases_and_only_known_changefeeds(tmp_path: Path, capsys: Capsys) -> None:
    log = Upstream(tmp_path).log
    code, _, err = tidemill(capsys, "redo", "apply", "--log", log, "--sink-uri", "blackhole://")
    assert (code, "replay" in err) == (1, True)
    code, _, err = tidemill(capsys, "redo", "meta", "--log", log, "-c", "other")
    assert (code, "no changefeed other" in err) == (1, True)


def test_storage_as_ticdc_spells_it() -> None:
    assert location_of("file:///tmp/redo") == location_of("nfs:///tmp/redo?x=1") == "/tmp/redo"
    wanted = "s3://k:s%2F@bucket/redo?endpoint_override=host%3A9000&scheme=http&region=us-east-1"
    assert location_of("s3://bucket/redo?endpoint=http://host:9000&access-key=k&secret-access-key=s%2F") == wanted
    assert location_of("s3://bucket/redo?region=eu") == "s3://bucket/redo?region=eu"


ROUTES = """[[sink.dispatchers]]
matcher = ['app.*']
target-schema = 'away'
target-table = '{table}_routed'
"""


def test_the_log_is_applied_to_routed_tables(db: MariaDb, tmp_path: Path, capsys: Capsys) -> None:
    """The log has the upstream's names: who applies it needs the changefeed's configuration."""
    upstream = Upstream(tmp_path)
    upstream.sql.run(
        "RENAME TABLE u TO v", "INSERT INTO v VALUES (3, 'three')", "CREATE TABLE gone (id INT PRIMARY KEY)", "DROP TABLE gone"
    )
    log = upstream.sql.write(tmp_path / "whole")
    db.run("CREATE DATABASE away")
    config = parse_config(ROUTES)
    replay(log, Settings("f", config.sink_uri(db.uri), config, UTC), target_ts=upstream.middle)
    assert tables_in(db, "away") == {"t_routed", "u_routed"}
    (tmp_path / "feed.toml").write_text(ROUTES)
    code, _, err = tidemill(capsys, "redo", "apply", "--log", log, "--sink-uri", db.uri, "--config", tmp_path / "feed.toml")
    assert code == 0, err
    assert (tables_in(db, "away"), tables_in(db, "app")) == ({"t_routed", "v_routed", "w_routed"}, set())
    for name, wanted in (("t", "(1, 5), (2, 2), (3, 3), (4, 4)"), ("v", "(2, 'two'), (3, 'three')"), ("w", "(7,)")):
        assert db.rows(f"SELECT * FROM away.{name}_routed ORDER BY 1") == list(ast.literal_eval(f"[{wanted}]"))


def tables_in(db: MariaDb, schema: str) -> set[str]:
    return {str(name) for (name,) in db.rows(f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{schema}'")}


def test_a_driver_that_was_only_frozen_is_fenced(db: MariaDb, tmp_path: Path, capsys: Capsys) -> None:
    """That of the changefeed, by the fence beside its log; and a `redo apply` that had begun before, by the same."""
    upstream = Upstream(tmp_path)
    upstream.run(db, upstream.middle)
    changefeed = Fence(LocalStorage(upstream.log), "fences/f.json")
    changefeed.take()
    sink = parse_config("").sink_uri(db.uri)
    begin, earlier = take_over(upstream.log, sink, None, None)
    assert earlier is not None
    with pytest.raises(Fenced):
        changefeed.check(now=True)
    code, _, err = tidemill(capsys, "redo", "apply", "--log", upstream.log, "--sink-uri", db.uri)
    assert code == 0, err
    with pytest.raises(Fenced):
        earlier.check(now=True)
    with pytest.raises(Fenced):
        replay(upstream.log, Settings("f", sink, parse_config(""), UTC), start_ts=begin.ts, resumed=begin.resumed, fence=earlier)
    assert upstream.differences(db) == []


def test_a_log_that_cannot_be_written_is_applied_without_a_fence(db: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = Upstream(tmp_path)
    upstream.run(db, upstream.middle)

    def refused(fence: Fence) -> int:
        raise LogRefused(f"{fence.place}: AccessDenied")

    with monkeypatch.context() as patch:
        patch.setattr("tidemill.changefeed.redo.Fence.take", refused)
        _, fence = take_over(upstream.log, parse_config("").sink_uri(db.uri), None, None)
    assert fence is None
