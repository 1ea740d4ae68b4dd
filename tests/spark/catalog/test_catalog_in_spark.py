"""TiDB as a catalog of Spark: names, descriptions, reads that are pushed down and those that are not, time travel, CHANGES, streams."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from tests.support.changelog.sqllogs import SqlLog
from tests.support.spark.frames import needs_streams
from tests.support.spark.sessions import patiently, spark_session
from tidemill.playground.server import PlaygroundThread
from tidemill.spark import register_catalog
from tidemill.tso import physical_ms

pytestmark = [pytest.mark.spark, pytest.mark.slow]

session = spark_session()


class Shop:
    """A cluster and its log: three orders, then one changed and one deleted. `created`, `before`: ts before each of the two."""

    def __init__(self, cluster: PlaygroundThread, folder: Path) -> None:
        self.pd = cluster.pd_address
        for statement in (
            "CREATE DATABASE shop",
            "CREATE DATABASE empty",
            "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, state VARCHAR(20) COMMENT 'where it is', total DECIMAL(10,2)) COMMENT 'all'",
            "CREATE TABLE shop.`odd.name` (a INT, b INT, PRIMARY KEY (a, b)) PARTITION BY HASH (a) PARTITIONS 3",
            "CREATE VIEW shop.seen AS SELECT id FROM shop.orders",
        ):
            cluster.execute(statement)
        self.created = cluster.call(cluster.playground.cluster.oracle.next)
        cluster.execute("INSERT INTO shop.orders VALUES (1, 'new', 1.5), (2, 'new', 2.5), (3, 'paid', 3)")
        self.before = cluster.call(cluster.playground.cluster.oracle.next)
        cluster.execute("UPDATE shop.orders SET state = 'paid' WHERE id = 1")
        cluster.execute("DELETE FROM shop.orders WHERE id = 2")
        self.log = SqlLog.of(cluster.playground).write(folder / "log")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with PlaygroundThread(5) as cluster:
        yield Shop(cluster, tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def spark(session: Any, shop: Shop) -> Any:
    register_catalog(session, "tidb", pd=shop.pd)
    return register_catalog(session, "history", log=shop.log)


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def plan(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan())


@pytest.mark.parametrize("catalog", ["tidb", "history"])
def test_databases_and_tables_of_a_cluster_and_of_a_log(spark: Any, catalog: str) -> None:
    assert {"shop", "empty"} <= {row.namespace for row in spark.sql(f"SHOW NAMESPACES IN {catalog}").collect()}
    assert rows(spark.sql(f"SHOW TABLES IN {catalog}.shop").select("tableName")) == [("odd.name",), ("orders",)]
    assert spark.sql(f"SHOW TABLES IN {catalog}.SHOP LIKE 'ord*'").count() == 1
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        spark.sql(f"SHOW TABLES IN {catalog}.nope")


def test_a_table_is_described(spark: Any) -> None:
    described = {row.col_name: (row.data_type, row.comment) for row in spark.sql("DESCRIBE TABLE EXTENDED tidb.shop.orders").collect()}
    assert described["id"] == ("bigint", None)
    assert described["state"] == ("string", "where it is")
    assert described["total"] == ("decimal(10,2)", None)
    assert described["Comment"][0] == "all"
    assert "key=id" in described["Table Properties"][0]
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.table("tidb.shop.nope")


def test_what_is_pushed_down_changes_no_row(spark: Any) -> None:
    every = rows(spark.table("tidb.shop.orders"))
    assert [row[:2] for row in every] == [(1, "paid"), (3, "paid")]
    cut = spark.sql("SELECT state FROM tidb.shop.orders WHERE id > 1")
    assert rows(cut) == [("paid",)]
    assert "columns [id, state], PushedFilters: [IsNotNull(id), GreaterThan(id,1)]" in plan(cut)
    assert spark.sql("SELECT count(*) FROM tidb.shop.orders").first()[0] == len(every)
    first = spark.sql("SELECT id FROM tidb.shop.orders LIMIT 1")
    assert len(first.collect()) == 1
    assert "PushedLimit: 1" in plan(first)
    limited = spark.sql("SELECT id FROM tidb.shop.orders WHERE state = 'paid' AND total > 2 LIMIT 1")
    assert rows(limited) == [(3,)], "a limit stays behind filters that Spark applies"
    assert spark.sql("SELECT * FROM tidb.shop.`odd.name`").count() == 0


def test_versions_and_moments(spark: Any, shop: Shop) -> None:
    old = [(1, "new"), (2, "new"), (3, "paid")]
    assert rows(spark.sql(f"SELECT id, state FROM tidb.shop.orders VERSION AS OF {shop.before}")) == old
    moment = datetime.fromtimestamp((physical_ms(shop.before) + 1) / 1000, UTC).isoformat(timespec="milliseconds")
    travelled = spark.sql(f"SELECT id FROM tidb.shop.orders TIMESTAMP AS OF '{moment}'")
    assert "as of" in plan(travelled)
    assert rows(spark.read.option("versionAsOf", str(shop.before)).table("tidb.shop.orders").select("id", "state")) == old
    with pytest.raises(AnalysisException, match="future"):
        spark.sql("SELECT * FROM tidb.shop.orders TIMESTAMP AS OF '2999-01-01'")


@needs_streams
def test_changes(spark: Any, shop: Shop) -> None:
    clause = f"SELECT id, state, _change_type FROM history.shop.orders CHANGES FROM VERSION {shop.before}"
    later = [(1, "new", "update_preimage"), (1, "paid", "update_postimage"), (2, "new", "delete")]
    assert rows(spark.sql(clause + " WITH (deduplicationMode = 'none')")) == later
    by_hand = spark.read.option("startingVersion", str(shop.before)).option("deduplicationMode", "none").changes("history.shop.orders")
    assert rows(by_hand.select("id", "state", "_change_type")) == later
    assert by_hand.columns[-3:] == ["_change_type", "_commit_version", "_commit_timestamp"]
    deleted = by_hand.where("_change_type = 'delete' AND _commit_version > 0").select("id")
    assert rows(deleted) == [(2,)]
    assert "EqualTo(_change_type,delete)" in plan(deleted)
    until = f"SELECT id FROM history.shop.orders CHANGES FROM VERSION {shop.created} TO VERSION {shop.before}"
    assert rows(spark.sql(until)) == [(1,), (2,), (3,)]
    assert rows(spark.sql("SELECT id FROM history.shop.orders CHANGES FROM TIMESTAMP '2999-01-01'")) == []


@needs_streams
def test_a_stream_of_changes(spark: Any, shop: Shop, tmp_path: Path) -> None:
    changes = (
        spark.readStream.option("startingVersion", str(shop.before)).option("deduplicationMode", "none").changes("history.shop.orders")
    )
    written = changes.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c"))
    patiently(lambda: written.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination())
    assert rows(spark.read.parquet(str(tmp_path / "out")).select("id", "_change_type")) == [
        (1, "update_postimage"),
        (1, "update_preimage"),
        (2, "delete"),
    ]


def test_a_table_of_a_log_alone_has_changes_only(spark: Any) -> None:
    with pytest.raises(AnalysisException, match="a log has changes, not tables"):
        spark.table("history.shop.orders")


@pytest.mark.parametrize("statement", ["DROP TABLE tidb.shop.orders", "CREATE NAMESPACE tidb.more", "CREATE TABLE tidb.shop.more (id INT)"])
def test_nothing_is_written(spark: Any, statement: str) -> None:
    with pytest.raises(Exception, match="TiDB is read, not written"):
        spark.sql(statement)
