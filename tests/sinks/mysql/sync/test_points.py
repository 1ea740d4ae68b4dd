"""Sync points: where they lie, what is written, and that the database holds exactly what the upstream held."""

from __future__ import annotations

from datetime import UTC
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.bank_reader import ACCOUNTS, ALL, START
from tests.support.delivery.database_sinks import CREATE, LATER, change, made_of
from tests.support.servers.mariadb import MariaDb
from tidemill.changefeed.replay import replay
from tidemill.config.file import parse_config
from tidemill.config.uri import parse_sink_uri
from tidemill.delivery.inputs.table_router import Settings
from tidemill.errors import ConfigError
from tidemill.playground.server import Playground
from tidemill.records import KIND_INSERT
from tidemill.sinks.mysql.connection import Connection, ServerFault
from tidemill.sinks.mysql.session import Server
from tidemill.sinks.mysql.sync import points as sync_points
from tidemill.sinks.mysql.sync.moments import is_sync_point
from tidemill.sinks.mysql.sync.points import SyncPoints
from tidemill.tso import compose, next_multiple

EVERY_MS = 30_000
CONFIG = "enable-sync-point = true\nsync-point-interval = '30s'\n"


def test_they_lie_at_multiples_of_the_interval() -> None:
    assert next_multiple(compose(29_999, 7), EVERY_MS) == compose(30_000)
    assert next_multiple(compose(30_000), EVERY_MS) == compose(60_000)
    assert [is_sync_point(ts, EVERY_MS) for ts in (compose(60_000), compose(60_000, 1), compose(60_001))] == [True, False, False]
    assert not is_sync_point(compose(60_000), 0)


def test_names_defaults_and_bounds_are_ticdcs() -> None:
    options = parse_config("enable-sync-point = true").sink_uri("mysql://h/").database
    assert (options.sync_point_every, options.sync_point_retention) == (600_000, 86_400_000)
    assert parse_sink_uri("mysql://h/").database.sync_point_every == 0
    with pytest.raises(ConfigError, match="sync-point-interval = '29s': expected a duration from 30s"):
        parse_config("sync-point-interval = '29s'").sink_uri("mysql://h/")
    with pytest.raises(ConfigError, match="sync-point-retention = '59m': expected a duration from 1h"):
        parse_config("sync-point-retention = '59m'").sink_uri("mysql://h/")
    with pytest.raises(ConfigError, match="enable-sync-point is not supported for kafka://"):
        parse_config("enable-sync-point = true").sink_uri("kafka://h:1/t?protocol=canal-json")


class Tidb:
    """A connection to a TiDB that does not know some variable."""

    server = Server("8.0.11-TiDB-v8.5.1")

    def __init__(self, unknown: str = "") -> None:
        self._unknown, self._published = unknown, 0
        self.said: list[str] = []

    def run(self, statement: str, *values: object) -> int:
        if self._unknown and self._unknown in statement:
            raise ServerFault(1193, f"Unknown system variable '{self._unknown}'")
        self.said.append(statement % tuple(repr(value) for value in values))
        if "tidb_external_ts" in statement:
            self._published = int(statement.rpartition(" ")[2])
        return 1

    def commit(self) -> None:
        pass

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        if "tidb_external_ts" in statement:
            if self._unknown:
                raise ServerFault(1193, f"Unknown system variable '{self._unknown}'")
            return [(self._published,)]
        self.said.append(statement)
        return [(777,)]


@pytest.mark.parametrize("unknown", ["", "tidb_external_ts"])
def test_tidbs_own_ts_of_the_moment_is_noted_and_published(unknown: str) -> None:
    tidb = Tidb(unknown)
    points = SyncPoints("feed", 3_600_000)
    for ts in (compose(30_000), compose(60_000)):
        points.write(cast("Connection", tidb), ts)
        points.clean(cast("Connection", tidb))
    columns = "ticdc_cluster_id, changefeed, primary_ts, secondary_ts"
    inserts = [
        f"INSERT IGNORE INTO tidb_cdc.syncpoint_v1 ({columns}) VALUES ('default', 'default/feed', '{compose(ms)}', '777')"
        for ms in (30_000, 60_000)
    ]
    publish = [] if unknown else ["SET GLOBAL tidb_external_ts = 777"]
    clean = (
        "DELETE IGNORE FROM tidb_cdc.syncpoint_v1 WHERE ticdc_cluster_id = 'default' AND changefeed = 'default/feed' "
        "AND created_at < (NOW() - INTERVAL 3600.00 SECOND)"
    )
    ask = "SELECT @@tidb_current_ts"
    assert tidb.said == [ask, inserts[0], *publish, clean, ask, inserts[1]]  # what is published never goes back


@pytest.fixture
def db(mariadb: MariaDb) -> MariaDb:
    mariadb.clear()
    return mariadb


@pytest.mark.slow
@pytest.mark.not_tidb("it has a ts of its own")
def test_a_sync_point_and_the_end_of_its_batch_are_one_transaction(db: MariaDb, monkeypatch: pytest.MonkeyPatch) -> None:
    db.run(*CREATE, *sync_points.CREATE)
    for feed, ts in (("default/feed", "1"), ("default/other", "2")):
        db.run(f"INSERT INTO tidb_cdc.syncpoint_v1 VALUES ('default', '{feed}', '{ts}', NULL, NOW() - INTERVAL 25 HOUR)")
    at = next_multiple(LATER, EVERY_MS)
    with made_of(db) as sinks:
        sink = sinks("enable-sync-point=true&sync-point-interval=30s")
        sink.batch(1, change(KIND_INSERT, 1, 1, at - 5), from_ts=at - 10, to_ts=at - 1)
        assert db.rows("SELECT COUNT(*) FROM tidb_cdc.syncpoint_v1") == [(2,)]
        monkeypatch.setattr("tidemill.sinks.mysql.bookkeeping.Books._mark", dies)
        with pytest.raises(ZeroDivisionError):
            sink.driver.finish_batch(sink.begin(2, at - 1, at))
        monkeypatch.undo()
        assert db.rows("SELECT COUNT(*) FROM tidb_cdc.syncpoint_v1") == [(2,)]
        sink.batch(3, change(KIND_INSERT, 2, 2, at), from_ts=at - 1, to_ts=at)
    found = db.rows("SELECT ticdc_cluster_id, changefeed, primary_ts, secondary_ts FROM tidb_cdc.syncpoint_v1 ORDER BY 2")
    assert found == [("default", "default/feed", str(at), None), ("default", "default/other", "2", None)]


@pytest.mark.slow
def test_a_checkpoint_that_is_overwritten_passes_over_sync_points(db: MariaDb) -> None:
    """The changefeed goes on between two of them, and writes the next."""
    db.run(*CREATE, *sync_points.CREATE)
    first = next_multiple(LATER, EVERY_MS)
    passed = next_multiple(first, EVERY_MS)
    last = next_multiple(passed, EVERY_MS)
    with made_of(db) as sinks:
        sink = sinks("enable-sync-point=true&sync-point-interval=30s")
        sink.batch(1, change(KIND_INSERT, 1, 1, first), from_ts=first - 1, to_ts=first)
        sink.close()
        again = sinks("enable-sync-point=true&sync-point-interval=30s")
        again.batch(2, change(KIND_INSERT, 2, 2, passed + 1_000_005), from_ts=passed + 1_000_000, to_ts=last - 1)
        again.batch(3, change(KIND_INSERT, 3, 3, last), from_ts=last - 1, to_ts=last)
    assert db.rows("SELECT primary_ts FROM tidb_cdc.syncpoint_v1 ORDER BY 1") == [(str(first),), (str(last),)]
    assert db.rows("SELECT c1 FROM s.t ORDER BY 1") == [(1,), (2,), (3,)]


def dies(*_: object) -> None:
    """The process, before the transaction is committed."""
    raise ZeroDivisionError


@pytest.mark.slow
@pytest.mark.parametrize("parameters", ["", "transaction-atomicity=global"])
@pytest.mark.not_tidb("a trigger looks")
def test_at_a_sync_point_the_tables_are_those_of_the_upstream(db: MariaDb, tmp_path: Path, parameters: str) -> None:
    """The bank: a trigger on TiCDC's table reads everything at that moment."""
    clock = SimpleNamespace(ms=1_700_000_000_000)

    def tick() -> int:
        clock.ms += 1_300
        return int(clock.ms)

    playground = Playground(5, clock=tick)
    sql = SqlLog.of(playground)
    sql.work("bank", 60)
    log = sql.write(tmp_path / "log", partitions=2)
    db.run(*sync_points.CREATE, "CREATE DATABASE seen", "CREATE TABLE seen.balances (ts VARCHAR(18), balance BIGINT)")
    for bank in ("bank_a", "bank_b"):
        db.run(f"CREATE DATABASE {bank}", f"CREATE TABLE {bank}.accounts (id INT PRIMARY KEY, balance BIGINT, owner VARCHAR(40))")
    db.run(
        "CREATE TRIGGER tidb_cdc.look AFTER INSERT ON tidb_cdc.syncpoint_v1 FOR EACH ROW "
        f"INSERT INTO seen.balances SELECT NEW.primary_ts, balance FROM ({ALL}) accounts"
    )
    config = parse_config(CONFIG)
    replay(log, Settings("f", config.sink_uri(f"{db.uri}?{parameters}"), config, UTC), parallelism=2)
    points = [int(ts) for (ts,) in db.rows("SELECT primary_ts FROM tidb_cdc.syncpoint_v1 ORDER BY primary_ts + 0")]
    assert len(points) > 5
    assert all(second - first == compose(EVERY_MS) for first, second in pairwise(points))
    sums = set()
    for ts in points:
        expected = sorted(row["balance"] for table in sql.tables_at(ts).values() for row in table.rows)
        assert [balance for (balance,) in db.rows(f"SELECT balance FROM seen.balances WHERE ts = '{ts}' ORDER BY balance")] == expected
        sums.add(sum(expected))
    assert 2 * ACCOUNTS * START in sums
