"""A row that keeps its key and gets another record key is one row: in another partition, as a global index allows."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.lake.lakes import assert_equal, deliver
from tests.support.spark.frames import read
from tidemill.sinks.lake.manifest import times
from tidemill.sinks.storage.store import LocalStore
from tidemill.spark.source import reading
from tidemill.spark.source.rows import read_rows

pytestmark = pytest.mark.slow
PARTITIONED = (
    "CREATE TABLE t (id INT, a INT, PRIMARY KEY (id) NONCLUSTERED) PARTITION BY RANGE (a) "
    "(PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (200), PARTITION p2 VALUES LESS THAN (300))"
)
LAKES = ["delta://{lake}", "iceberg://c/cdc?warehouse=file://{lake}&catalog-uri=sqlite:///{lake}.db"]


def _moved(seed: int) -> SqlLog:
    """Twenty rows, each moved a few times, some in one transaction with others."""
    random, sql = Random(seed), SqlLog(PARTITIONED)
    sql.run("INSERT INTO t VALUES " + ", ".join(f"({i}, {10 * i})" for i in range(20)))
    for _ in range(30):
        moves = [f"UPDATE t SET a = {random.randrange(300)} WHERE id = {random.randrange(20)}" for _ in range(random.randrange(1, 4))]
        sql.run("BEGIN", *moves, "COMMIT")
    return sql


@pytest.mark.parametrize("uri", LAKES)
def test_a_row_that_moves_in_an_interval_stays_one_row(tmp_path: Path, uri: str) -> None:
    sql = _moved(1)
    lake = tmp_path / "lake"
    lake.mkdir()
    deliver(sql.write(tmp_path / "log", partitions=2), uri.format(lake=lake))
    assert sum(assert_equal(lake, sql, ts) for ts in times(LocalStore(lake)))


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_a_log_tell_the_last_image_of_a_key(tmp_path: Path, seed: int) -> None:
    sql = _moved(seed)
    log = sql.write(tmp_path / "log", partitions=2)
    typed, objects = dict[int, int](), dict[int, int]()
    for row in read_rows(log, table="app.t"):
        if row["_change_type"] in ("insert", "update_postimage"):
            typed[row["id"]] = row["a"]
        else:
            typed.pop(row["id"])
    for row in read_rows(log, tables="app.t"):
        if row["after"] is not None:
            objects[json.loads(row["after"])["id"]] = json.loads(row["after"])["a"]
        else:
            objects.pop(json.loads(row["before"])["id"])
    end = sql.run()
    assert typed == objects == {row["id"]: row["a"] for row in sql.tables_at(end)["app", "t"].rows}


def test_a_transaction_that_is_larger_than_a_batch_has_its_deletes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CHUNK_ROWS", 7)
    sql = SqlLog(PARTITIONED)
    sql.run("INSERT INTO t VALUES " + ", ".join(f"({i}, {100 + i})" for i in range(50)))
    sql.run("UPDATE t SET a = a - 100")
    kinds = [row["_change_type"] for row in read(sql.write(tmp_path / "log"), table="app.t")]
    assert kinds == ["insert"] * 50 + ["delete"] * 50 + ["insert"] * 50
