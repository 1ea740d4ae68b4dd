"""The formats in a Spark session: batch, stream and restart, pushed filters, chosen columns, faults; and the example."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import functions as F

from examples.audit_trail import run
from tests.support.changelog.sqllogs import SqlLog
from tests.support.lake.lakes import deliver
from tests.support.spark.frames import needs_streams
from tests.support.spark.sessions import as_started, patiently, spark_session
from tidemill.errors import ConfigError, SinkError
from tidemill.functions import apply_changes, from_csv, from_simple
from tidemill.playground.server import PlaygroundThread
from tidemill.spark import as_of, register
from tidemill.spark.formats import PUSH_DOWN

pytestmark = [pytest.mark.spark, pytest.mark.slow]

session = spark_session()


@pytest.fixture(scope="module")
def spark(session: Any) -> Any:
    return register(session)


@pytest.fixture
def made(tmp_path: Path) -> tuple[SqlLog, Path]:
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY, price DECIMAL(12,2), b BIGINT UNSIGNED, at DATETIME(3), v VECTOR, t TIME)")
    full = "(1, 1.5, 18446744073709551615, '2026-01-02 03:04:05.678', '[1,2.5]', '-01:02:03')"
    sql.run(f"INSERT INTO t VALUES {full}, (2, 2, 0, NULL, NULL, NULL)")
    sql.run("UPDATE t SET price = 3 WHERE id = 1")
    sql.run("DELETE FROM t WHERE id = 2")
    return sql, tmp_path / "log"


def reader(reading: Any, log: str, **options: str) -> Any:
    return reading.format("tidemill").option("log", log).option("table", "app.t").options(**options)


@pytest.mark.usefixtures("session")
def test_a_session_of_ours_knows_the_formats(made: tuple[SqlLog, Path]) -> None:
    log, first = made[0].write(made[1]), as_started()
    assert reader(first.read, log).load().count() == 5
    assert reader(register(register(first.newSession())).read, log).load().count() == 5


def test_a_session_that_was_told_nothing_finds_them(session: Any, made: tuple[SqlLog, Path], tmp_path: Path) -> None:
    made[0].run("ALTER TABLE t ADD COLUMN more INT")
    log, plain = made[0].write(made[1]), session.newSession()
    assert plain.conf.get(PUSH_DOWN) == "false"
    rows = reader(plain.read, log).load().filter("_change_type = 'delete' and _commit_ts > 0")
    assert [row.id for row in rows.collect()] == [2]
    assert plain.read.format("tidemill.ddl").option("log", log).load().count() == 1
    with pytest.raises(AnalysisException, match="option pd is missing"):
        plain.read.format("tidemill.table").option("table", "app.t").load()
    plain.conf.set("spark.tidemill.log", log)
    with pytest.raises(AnalysisException, match="one of the options log, logFile and pd"):
        plain.read.format("tidemill").option("table", "app.t").load()
    assert register(plain).read.format("tidemill").option("table", "app.t").load().count() == 5
    plain.sql("CREATE TEMPORARY VIEW c USING tidemill OPTIONS (table 'app.t')")
    assert plain.sql("SELECT count(*) FROM c").first()[0] == 5


def test_a_batch(spark: Any, made: tuple[SqlLog, Path]) -> None:
    log = made[0].write(made[1], partitions=2)
    frame = reader(spark.read, log, timeAs="interval").load()
    assert frame.schema.simpleString().startswith(
        "struct<id:int,price:decimal(12,2),b:decimal(20,0),at:timestamp_ntz,v:array<float>,t:interval day to second,_change_type:string"
    )
    rows = frame.orderBy("_commit_ts", "id", "_change_type").collect()
    assert [(r.id, r._change_type) for r in rows] == [
        *((1, "insert"), (2, "insert"), (1, "update_postimage"), (1, "update_preimage"), (2, "delete"))
    ]
    assert (rows[0].b, rows[0].v, rows[0]["at"].isoformat()) == (Decimal((1 << 64) - 1), [1.0, 2.5], "2026-01-02T03:04:05.678000")
    assert rows[0].t.total_seconds() == -3723
    cut = frame.filter((F.col("_commit_ts") > rows[1]._commit_ts) & (F.col("_change_type") == "delete") & (F.col("price") > 1))
    plan = cut._jdf.queryExecution().executedPlan().toString()
    assert "Filter" in plan
    assert "_commit_ts#" not in plan.partition("Filter")[2].partition("BatchScan")[0], "the source does it"
    assert [r.id for r in cut.collect()] == [2]
    assert reader(spark.read.schema("price double"), log).load().groupBy().sum("price").first()[0] == 1.5 + 2 + 1.5 + 3 + 2


@needs_streams
def test_a_stream_and_its_restart(spark: Any, made: tuple[SqlLog, Path], tmp_path: Path) -> None:
    sql, folder = made
    log = sql.write(folder, partitions=2)

    def go() -> Any:
        frame = reader(spark.readStream, log, maxRowsPerTrigger="2").load().select("id", "_change_type", "_commit_ts")
        query = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        shown.extend(p["sources"][0] for p in query.recentProgress if p["numInputRows"])
        return [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]

    shown: list[dict[str, Any]] = []
    assert patiently(go) == [2, 3]
    first, last = (json.loads(one["latestOffset"]) if isinstance(one["latestOffset"], str) else one["latestOffset"] for one in shown[:2])
    assert first["ts"] == last["ts"], "the log's resolved ts"
    assert sorted(first) == ["batchBytes", "lagMs", "ts"]
    assert first["batchBytes"] > 0
    sql.run("INSERT INTO t (id) VALUES (3)")
    sql.write(folder, partitions=2)
    assert patiently(go) == [1]
    assert spark.read.parquet(str(tmp_path / "out")).count() == 6
    sql.run("ALTER TABLE t ADD COLUMN more INT", "INSERT INTO t (id) VALUES (4)")
    sql.write(folder, partitions=2)
    with pytest.raises(StreamingQueryException, match=r"(?s)columns of app\.t are others.*ADD COLUMN.*schemaTs=latest"):
        patiently(go)


def test_json_as_variant(spark: Any, tmp_path: Path) -> None:
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY, doc JSON)")
    sql.run("""INSERT INTO t VALUES (1, '{"a": {"b": [1, 2.5, "x"]}, "n": 18446744073709551615}'), (2, NULL)""")
    log = sql.write(tmp_path / "log")
    rows = reader(spark.read, log).load().withColumn("doc", F.parse_json("doc"))
    assert rows.schema["doc"].dataType.simpleString() == "variant"
    found = rows.selectExpr("variant_get(doc, '$.a.b[1]', 'double') x", "variant_get(doc, '$.n', 'decimal(20,0)') n", "id").orderBy("id")
    assert [tuple(row) for row in found.collect()] == [(2.5, Decimal((1 << 64) - 1), 1), (None, None, 2)]
    changes = spark.read.format("tidemill").option("log", log).option("tables", "app.*").load().withColumn("after", F.parse_json("after"))
    inside = changes.select(F.variant_get("after", "$.id", "int").alias("id"), F.variant_get("after", "$.doc", "string").alias("doc"))
    assert sorted(row.id for row in inside.collect()) == [1, 2]


@needs_streams
def test_changes_applied_to_a_table(spark: Any, made: tuple[SqlLog, Path], tmp_path: Path) -> None:
    sql, folder = made
    log = sql.write(folder, partitions=2)

    def go(checkpoint: str) -> None:
        changes = reader(spark.readStream, log, maxRowsPerTrigger="2").load()
        given: dict[str, Any] = {"checkpoint": str(tmp_path / checkpoint), "trigger": {"availableNow": True}}
        query = apply_changes(changes, str(tmp_path / "lake"), table="app.t", keys="id", **given)
        assert query is not None
        query.awaitTermination()

    def held() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = DeltaTable(str(tmp_path / "lake/app/t")).to_pyarrow_table().to_pylist()
        return rows

    patiently(lambda: go("one"))
    (row,) = held()
    assert (row["id"], row["price"], row["b"], row["v"]) == (1, Decimal("3.00"), Decimal((1 << 64) - 1), [1.0, 2.5])
    sql.run("INSERT INTO t (id) VALUES (3)", "DELETE FROM t WHERE id = 1")
    sql.write(folder, partitions=2)
    patiently(lambda: go("one"))
    assert [one["id"] for one in held()] == [3]
    changes = reader(spark.read, log).load().filter("id = 1 and _change_type != 'delete'")
    assert apply_changes(changes, str(tmp_path / "lake"), table="app.t", keys=["id"]) is None
    assert sorted(one["id"] for one in held()) == [1, 3]
    with pytest.raises(ConfigError, match="has no column idd; did you mean `id`"):
        apply_changes(changes, str(tmp_path / "lake"), table="app.t", keys="idd")
    with pytest.raises(ConfigError, match="needs a checkpoint"):
        apply_changes(reader(spark.readStream, log).load(), str(tmp_path / "lake"), table="app.t", keys="id")


def test_the_column_functions_of_text_protocols(spark: Any) -> None:
    line = spark.createDataFrame([(b'"D","t","d",1,1.5\r\n"I","t","d",2,2\r\n',)], "value binary")
    found = line.select(F.explode(from_csv("value", "id bigint, price decimal(12,2)")).alias("e")).select("e.*").collect()
    assert [(r.op, r.before and r.before.id, r.after and r.after.price) for r in found] == [
        ("delete", 1, None),
        ("insert", None, Decimal(2)),
    ]
    message = '{"version":1,"type":"INSERT","commitTs":9,"database":"d","table":"t","tableID":7,"schemaVersion":3,"data":{"id":"1"}}'
    frame = spark.createDataFrame([(message,)], "value string")
    (event,) = frame.select(F.explode(from_simple("value", "id bigint", table="d.t")).alias("e")).select("e.*").collect()
    assert (event.op, event.ts, event.after.id) == ("insert", 9, 1)


def test_ddls_and_faults(spark: Any, made: tuple[SqlLog, Path]) -> None:
    sql, folder = made
    sql.run("ALTER TABLE t ADD COLUMN more INT")
    log = sql.write(folder)
    (ddl,) = spark.read.format("tidemill.ddl").option("log", log).load().collect()
    assert (ddl._table, ddl.type) == ("t", "ADD COLUMN")
    with pytest.raises(AnalysisException, match=r"there is no option 'tabel'\n +Did you mean table\?"):
        reader(spark.read, log, tabel="x").load()


@pytest.mark.thorough("test_a_stream_and_its_restart reads in the same way, once")
@needs_streams
def test_the_example(spark: Any, made: tuple[SqlLog, Path], tmp_path: Path) -> None:
    log = made[0].write(made[1])
    patiently(lambda: run(spark, log, "app.t", str(tmp_path)))
    rows = spark.read.parquet(str(tmp_path / "trail")).orderBy("_commit_ts", "column").collect()
    (update,) = [r for r in rows if r._change_type == "update"]
    assert (update.column, update.before, update.after) == ("price", "1.50", "3.00")
    assert {r.column for r in rows if r._change_type == "delete"} == {"id", "price", "b"}
    patiently(lambda: run(spark, log, "app.t", str(tmp_path)))
    assert spark.read.parquet(str(tmp_path / "trail")).count() == len(rows), "nothing is read twice"


def test_a_table_of_tikv_as_of_a_ts(spark: Any) -> None:
    with PlaygroundThread(5) as cluster:
        cluster.execute(
            "CREATE DATABASE app; CREATE TABLE app.t (id BIGINT UNSIGNED PRIMARY KEY, price DECIMAL(12,2), at DATETIME(3), v VECTOR)"
        )
        cluster.execute("SPLIT TABLE app.t BETWEEN (0) AND (1000) REGIONS 4")
        cluster.execute(
            "INSERT INTO app.t VALUES (1, 1.5, '2026-01-02 03:04:05.678', '[1,2.5]'), (400, 2, NULL, NULL), (900, 3, NULL, NULL)"
        )
        then = cluster.call(cluster.playground.cluster.oracle.next)
        cluster.execute("DELETE FROM app.t WHERE id = 1; ALTER TABLE app.t DROP COLUMN price")

        def reading(**options: str) -> Any:
            return spark.read.format("tidemill.table").options(pd=cluster.pd_address, table="app.t", **options)

        frame = reading(as_of_ts=str(then)).load()
        assert frame.schema.simpleString() == "struct<id:decimal(20,0),price:decimal(12,2),at:timestamp_ntz,v:array<float>>"
        assert frame.rdd.getNumPartitions() == 4
        assert [(r.id, r.v) for r in frame.orderBy("id").collect()] == [(1, [1.0, 2.5]), (400, None), (900, None)]
        cut = frame.filter("id in (1, 900) and price > 1")
        assert cut.rdd.getNumPartitions() == 2, "the key's filter is pushed down"
        assert sorted(r.id for r in cut.collect()) == [1, 900]
        assert [r.asDict() for r in reading().load().filter("id > 500").collect()] == [{"id": 900, "at": None, "v": None}]
        with pytest.raises(AnalysisException, match=r"there is no option 'asof'\n +Did you mean asOfTs\?"):
            reading(asOf="1").load()


def test_tables_of_a_lake_at_one_ts(spark: Any, tmp_path: Path) -> None:
    sql = SqlLog("CREATE TABLE a (id INT PRIMARY KEY, n DECIMAL(10,2), at DATETIME, v VECTOR)", "CREATE TABLE b (id INT PRIMARY KEY)")
    sql.run("BEGIN", "INSERT INTO a VALUES (1, 1.5, '2026-01-02 03:04:05', '[1,2.5]'), (2, 2, NULL, NULL)", "INSERT INTO b VALUES (1), (2)")
    then = sql.run("COMMIT", "ALTER TABLE a RENAME COLUMN n TO m", "CREATE TABLE e (id INT PRIMARY KEY)")
    sql.run("BEGIN", "DELETE FROM a WHERE id = 1", "DELETE FROM b WHERE id = 1", "COMMIT", "ALTER TABLE a DROP COLUMN m", "DROP TABLE e")
    lake = tmp_path / "lake"
    deliver(sql.write(tmp_path / "log"), f"delta://{lake}")
    assert sorted(as_of(spark, str(lake))) == ["app.a", "app.b"]
    assert [row.asDict() for row in as_of(spark, str(lake))["app.a"].collect()] == [{"id": 2, "at": None, "v": None}]
    earlier = as_of(spark, f"delta://{lake}", then)
    assert earlier.create_views() == ["app_a", "app_b", "app_e"]
    found = spark.sql("SELECT id, m, at, v FROM app_a JOIN app_b USING (id) ORDER BY id").collect()
    assert [(row.id, row.m, row.v) for row in found] == [(1, Decimal("1.50"), [1.0, 2.5]), (2, Decimal("2.00"), None)]
    assert earlier["app.e"].count() == 0
    iceberg = f"iceberg://c/?warehouse=file://{tmp_path}/ice&catalog-uri=sqlite:///{tmp_path}/catalog.db"
    deliver(str(tmp_path / "log"), iceberg)
    before = as_of(spark, iceberg, then)["app.a"]
    assert sorted((row.id, row.m, row.v) for row in before.collect()) == [(1, Decimal("1.50"), [1.0, 2.5]), (2, Decimal("2.00"), None)]
    assert [row.asDict() for row in as_of(spark, iceberg)["app.a"].collect()] == [{"id": 2, "at": None, "v": None}]
    with pytest.raises(SinkError, match=r"no table app\.aa"):
        earlier["app.aa"]
