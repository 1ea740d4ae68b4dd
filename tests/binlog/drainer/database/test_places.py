"""Marks, columns that are lacking, session variables, and the place of the position, in a real MariaDB."""

from __future__ import annotations

import json
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from tests.support.binlog.made import MADE, ddl, inserted
from tests.support.servers.mariadb import MariaDb
from tidemill.binlog.drainer.database import moments
from tidemill.binlog.drainer.outlets import Outlet, open_outlet
from tidemill.binlog.drainer.savepoint import Position
from tidemill.binlog.drainer.settings import Checkpoint, Downstream, DrainerSettings
from tidemill.errors import SinkError

CLUSTER = 7


def outlet(db: MariaDb, folder: Path, *, to: dict[str, Any] | None = None, db_type: str = "mysql", **settings: Any) -> Outlet:
    place = Downstream(host="127.0.0.1", port=db.port, **(to or {}))
    return open_outlet(DrainerSettings(db_type=db_type, data_dir=str(folder), to=place, **settings).checked(), CLUSTER, UTC)


def checkpoint(db: MariaDb) -> dict[str, Any]:
    ((text,),) = db.rows("SELECT checkPoint FROM tidb_binlog.checkpoint")
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize("workers", [1, 3])
def test_each_transaction_of_a_worker_leaves_a_mark_of_the_channel(mariadb: MariaDb, tmp_path: Path, workers: int) -> None:
    mariadb.clear()
    made = outlet(mariadb, tmp_path, worker_count=workers, txn_batch=2, loopback_control=True, channel_id=5)
    made.write([*MADE, inserted(3, *range(6)), inserted(4, 100)])
    made.close()
    marks = mariadb.rows("SELECT id, channel_id, val FROM retl._drainer_repl_mark ORDER BY id")
    assert {(number, channel) for number, channel, _ in marks} == {(number, 5) for number in range(workers)}
    transactions = sum(count for _, _, count in marks)
    assert transactions >= (2 if workers == 1 else 4)
    assert mariadb.rows("SELECT COUNT(*) FROM d.t") == [(7,)]


def test_with_sync_mode_2_columns_that_are_lacking_downstream_are_left_out(mariadb: MariaDb, tmp_path: Path) -> None:
    mariadb.clear()
    lacking = [MADE[0], ddl(2, "CREATE TABLE t (ID INT PRIMARY KEY, own INT DEFAULT 8, v INT)")]
    made = outlet(mariadb, tmp_path, to={"sync_mode": 2})
    made.write([*lacking, inserted(3, 1), ddl(4, "ALTER TABLE t ADD more INT"), inserted(5, 2)])
    made.close()
    assert mariadb.rows("SELECT id, own, v, more FROM d.t ORDER BY id") == [(1, 8, 1, None), (2, 8, 2, 2)]
    made = outlet(mariadb, tmp_path)
    with pytest.raises(SinkError, match="1054"):
        made.write([ddl(6, "ALTER TABLE t DROP COLUMN more"), inserted(7, 3)])
    made.close()


def test_params_are_set_in_every_session_and_the_time_zone_counts_for_ddls(mariadb: MariaDb, tmp_path: Path) -> None:
    mariadb.clear()
    made = outlet(mariadb, tmp_path, worker_count=2, txn_batch=1, to={"params": (("lock_wait_timeout", "77"),), "zone": "'+08:00'"})
    columns = ", z TIMESTAMP NOT NULL DEFAULT '2020-01-01 08:00:00', w INT"
    made.write([MADE[0], ddl(2, f"CREATE TABLE t (id INT PRIMARY KEY, v INT, more INT{columns})")])
    mariadb.run("CREATE TRIGGER d.tell BEFORE INSERT ON d.t FOR EACH ROW SET NEW.w = @@SESSION.lock_wait_timeout")
    made.write([inserted(3, *range(6))])
    made.close()
    assert set(mariadb.rows("SELECT w, UNIX_TIMESTAMP(z) FROM d.t")) == {(77, 1_577_836_800)}


def test_a_parameter_that_the_database_does_not_have_stops_the_start_with_its_name(mariadb: MariaDb, tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="no_such_variable"):
        outlet(mariadb, tmp_path, to={"params": (("no_such_variable", "1"),)})


@pytest.mark.parametrize(
    "place",
    [Checkpoint(schema="own s", table="here"), Checkpoint("mysql", "elsewhere", "here", "127.0.0.1")],
)
def test_the_position_is_kept_where_the_checkpoint_says(mariadb: MariaDb, tmp_path: Path, place: Checkpoint) -> None:
    mariadb.clear()
    if place.host:
        place = Checkpoint(place.type, place.schema, place.table, place.host, mariadb.port)
    made = outlet(mariadb, tmp_path, to={"checkpoint": place})
    assert made.load() is None
    made.save(Position(9, 3, consistent=True))
    assert made.load() == Position(9, 3, consistent=True)
    made.close()
    name = f"`{place.schema.replace('`', '``')}`.here"
    assert mariadb.rows(f"SELECT clusterID, checkPoint FROM {name}") == [
        (CLUSTER, '{"consistent":true,"commitTS":9,"ts-map":{},"schema-version":3}')
    ]
    assert mariadb.rows("SHOW DATABASES LIKE 'tidb_binlog'") == []


@pytest.mark.parametrize("workers", [1, 3])
def test_at_the_moment_of_the_ts_map_the_tables_are_those_of_the_upstream(
    mariadb: MariaDb, tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MariaDB in the place of a TiDB: it is asked for its clock, and what the table held at that time."""
    mariadb.clear()
    monkeypatch.setattr(moments, "ASK", "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS UNSIGNED)")
    monkeypatch.setattr(moments, "EVERY_S", 0.0)
    made = outlet(mariadb, tmp_path, db_type="tidb", worker_count=workers, txn_batch=2)
    made.write(MADE)
    made.flush()
    mariadb.run("ALTER TABLE d.t ADD SYSTEM VERSIONING")
    found: list[dict[str, Any]] = []
    for ts in range(10, 40):
        made.write([inserted(ts, 3 * ts, 3 * ts + 1, 3 * ts + 2)])
        if ts % 3 == 0:
            made.flush()
            made.save(Position(ts))
            found.append(checkpoint(mariadb))
    made.flush()
    made.save(Position(39, consistent=True))
    assert checkpoint(mariadb)["ts-map"] == found[-1]["ts-map"]
    for one in found:
        primary, secondary = one["ts-map"]["primary-ts"], one["ts-map"]["secondary-ts"]
        assert primary == one["commitTS"]
        then = f"SELECT id FROM d.t FOR SYSTEM_TIME AS OF FROM_UNIXTIME({secondary} / 1000000) ORDER BY id"
        assert [key for (key,) in mariadb.rows(then)] == list(range(30, 3 * primary + 3))
    made.close()


def test_the_ts_map_is_taken_once_a_minute_is_kept_and_is_left_out_where_there_is_no_tidb(
    mariadb: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mariadb.clear()
    made = outlet(mariadb, tmp_path, db_type="tidb")
    made.save(Position(8))
    assert checkpoint(mariadb)["ts-map"] == {}
    made.close()
    monkeypatch.setattr(moments, "ASK", "SELECT 77")
    for place in (Checkpoint(), Checkpoint("mysql", host="127.0.0.1", port=mariadb.port)):
        made = outlet(mariadb, tmp_path, db_type="tidb", to={"checkpoint": place})
        made.load()
        made.save(Position(9))
        made.save(Position(10))
        assert checkpoint(mariadb) == {
            "consistent": False,
            "commitTS": 10,
            "ts-map": {"primary-ts": 9, "secondary-ts": 77},
            "schema-version": 0,
        }
        made.close()
    made = outlet(mariadb, tmp_path, db_type="tidb")
    assert made.load() == Position(10)
    made.save(Position(11, consistent=True))
    assert checkpoint(mariadb)["ts-map"] == {"primary-ts": 9, "secondary-ts": 77}
    made.close()


def test_the_position_may_be_kept_in_a_file_and_that_of_files_in_a_database(mariadb: MariaDb, tmp_path: Path) -> None:
    mariadb.clear()
    made = outlet(mariadb, tmp_path, to={"checkpoint": Checkpoint("file")})
    made.save(Position(9))
    made.close()
    assert (tmp_path / "savepoint").is_file()
    place = Checkpoint("mysql", host="127.0.0.1", port=mariadb.port)
    settings = DrainerSettings(db_type="file", data_dir=str(tmp_path), to=Downstream(dir=str(tmp_path / "out"), checkpoint=place))
    made = open_outlet(settings.checked(), CLUSTER, UTC)
    assert made.load() is None
    made.save(Position(11))
    assert made.load() == Position(11)
    made.close()
