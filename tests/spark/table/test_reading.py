"""Tables as of a ts: every type, several ts, many regions that change meanwhile, partitions, locks, and what cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, In, LessThan
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tests.support.changelog.sqllogs import SqlLog
from tests.support.changelog.typed_tables import ROWS, TYPES
from tests.support.spark.tables import changed_into, counted, later, read_table, safe_points, table_reader
from tidemill.errors import ConfigError, SchemaError, StartTsBeforeGc
from tidemill.playground.server import PlaygroundThread
from tidemill.spark.table import reading
from tidemill.spark.table.source import table_plan
from tidemill.tidb.keys import record_key

N = 300
PARTITIONS = (
    "CREATE TABLE app.parts (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id)"
    " (PARTITION low VALUES LESS THAN (100), PARTITION mid VALUES LESS THAN (200), PARTITION high VALUES LESS THAN MAXVALUE)"
)


class Made:
    """A playground with tables of all types. `times`: a ts past each step."""

    def __init__(self, cluster: PlaygroundThread, folder: Path) -> None:
        self.cluster, self.pd, self.times = cluster, cluster.pd_address, [0]
        self.run("CREATE DATABASE app", *TYPES, PARTITIONS, *ROWS)
        self.run("CREATE TABLE app.many (id BIGINT PRIMARY KEY, v VARCHAR(20))")
        for table in ("many", "parts"):
            self.run(f"INSERT INTO app.{table} VALUES " + ", ".join(f"({i}, '{i}')" for i in range(N)))
        self.run(
            "UPDATE app.types SET n = 5, v = NULL WHERE id = 1",
            "DELETE FROM app.keyless WHERE a = 2",
            "DELETE FROM app.strings WHERE b = 0",
        )
        self.log = SqlLog.of(cluster.playground).write(folder / "log")

    def run(self, *statements: str) -> int:
        for one in statements:
            self.cluster.execute(one)
        self.times.append(self.cluster.call(self.cluster.playground.cluster.oracle.next))
        return self.times[-1]

    def split(self, table: str, *handles: int) -> None:
        (found,) = [t for t in self.cluster.playground.database.catalog.tables.values() if t.name == table]
        self.cluster.call(self.cluster.playground.cluster.split, [record_key(i, h) for i in found.model.physical_ids for h in handles])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    with PlaygroundThread(5) as cluster:
        yield Made(cluster, tmp_path_factory.mktemp("made"))


@pytest.fixture(autouse=True)
def without_keeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks find no keeper, so each holds a safe point of its own."""

    async def start(pd: Any, cluster: Any, ts: int, tasks: int) -> Any:
        from tidemill.spark.table.holding import Hold

        return Hold(cluster, "test", ts, "127.0.0.1", 1, "")

    monkeypatch.setattr("tidemill.spark.table.source.start_keeper", start)


@pytest.mark.parametrize("table", ["types", "strings", "keyless", "wide", "parts"])
def test_the_rows_are_those_that_the_changes_made(made: Made, table: str) -> None:
    for ts in made.times[-3:]:
        rows = read_table(made.pd, f"APP.{table}", asOfTs=str(ts))
        assert counted(rows) == changed_into(made.log, f"app.{table}", ts)
    assert rows
    assert safe_points(made.cluster) == []


def test_columns_that_are_newer_than_rows(made: Made) -> None:
    before = made.run("CREATE TABLE app.grown (id INT PRIMARY KEY, a INT)", "INSERT INTO app.grown VALUES (1, 10)")
    made.run("ALTER TABLE app.grown ADD COLUMN b VARCHAR(9) DEFAULT 'x'", "ALTER TABLE app.grown ADD COLUMN c INT AS (a + 1) STORED")
    made.run("ALTER TABLE app.grown ADD COLUMN d INT AS (a + 2) VIRTUAL", "INSERT INTO app.grown (id, a, b) VALUES (2, 20, NULL)")
    rows = read_table(made.pd, "app.grown")
    assert [(row["id"], row["a"], row["b"]) for row in rows] == [(1, 10, "x"), (2, 20, None)]
    assert rows[1]["c"] == 21
    assert "d" not in rows[0], "TiDB stores no virtual columns"
    assert read_table(made.pd, "app.grown", asOfTs=str(before)) == [{"id": 1, "a": 10}]
    assert read_table(made.pd, "app.grown", columns="B") == [{"b": "x"}, {"b": None}]
    schema = StructType([StructField("a", LongType()), StructField("none", StringType())])
    assert read_table(made.pd, "app.grown", schema=schema) == [{"a": 10, "none": None}, {"a": 20, "none": None}]


def test_many_regions_a_task_each_or_several(made: Made) -> None:
    made.split("many", *range(20, N, 20))
    plan = table_plan(pd=made.pd, table="app.many")
    assert len(plan.tasks) == 15
    assert "15 key ranges in 15 regions, 15 tasks" in str(plan)
    assert [len(t.regions) for t in table_plan(pd=made.pd, table="app.many", regionsPerTask="4").tasks] == [4, 4, 4, 3]
    assert [row["id"] for row in read_table(made.pd, "app.many", regionsPerTask="4")] == list(range(N))
    assert [len(t.regions) for t in table_plan(pd=made.pd, table="app.many", tikvScans="4").tasks] == [4, 4, 4, 3]
    assert [len(t.regions) for t in table_plan(pd=made.pd, table="app.many", tikvScans="4", regionsPerTask="6").tasks] == [6, 6, 3]
    assert [row["id"] for row in read_table(made.pd, "app.many", tikvScans="1")] == list(range(N))
    few = table_plan(In(("id",), (5, 6, 7, 150)), pd=made.pd, table="app.many")
    assert [len(task.ranges) for task in few.tasks] == [3, 1]
    found = read_table(made.pd, "app.many", GreaterThan(("id",), 97), LessThan(("id",), 103))
    assert [row["id"] for row in found] == [98, 99, 100, 101, 102]
    assert read_table(made.pd, "app.many", EqualTo(("id",), 5), EqualTo(("id",), 6)) == []


def test_regions_split_and_merge_between_pages(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PAGE_ROWS", 7)
    monkeypatch.setattr(reading, "CHUNK_ROWS", 7)
    reader = table_reader(made.pd, "app.many", regionsPerTask="100")
    (partition,) = reader.partitions()
    found = []
    for step, batch in enumerate(reader.read(partition)):
        found += batch.column("id").to_pylist()
        made.split("many", found[-1] + 3)
        if step % 3 == 2:
            regions = list(made.cluster.playground.cluster.regions)
            made.cluster.call(made.cluster.playground.cluster.merge, regions[-1].id, regions[-2].id)
        made.cluster.execute(f"UPDATE app.many SET v = 'later' WHERE id = {found[-1] + 1}")
    assert found == list(range(N))


def test_partitions(made: Made) -> None:
    plan = table_plan(GreaterThan(("id",), 150), pd=made.pd, table="app.parts")
    assert (plan.partitions, plan.all_partitions) == (("mid", "high"), 3)
    assert "partitions: 2 of 3: mid, high" in str(plan)
    assert [row["id"] for row in read_table(made.pd, "app.parts", LessThan(("id",), 3))] == [0, 1, 2]


@pytest.mark.parametrize("primary", ["committed", "rolled-back", "locked"])
def test_locks_of_clients_that_died_are_resolved(made: Made, primary: str) -> None:
    """There is no capture that does it."""
    cluster = made.cluster.playground.cluster
    name = f"locked_{primary.replace('-', '_')}"
    made.run(f"CREATE TABLE app.{name} (id INT PRIMARY KEY)", f"INSERT INTO app.{name} VALUES (1)")
    (table,) = [t for t in made.cluster.playground.database.catalog.tables.values() if t.name == name]
    key, new = record_key(table.model.id, 1), [record_key(table.model.id, i) for i in (2, 3)]
    value = made.cluster.call(cluster.mvcc.tablet(key).newest, key)[2]
    pending = made.cluster.call(cluster.prewrite, [(one, value) for one in new], ttl_ms=1)
    if primary == "committed":
        made.cluster.call(cluster.commit, pending, keys=new[:1])
    if primary == "rolled-back":
        made.cluster.call(cluster.rollback, pending, keys=new[:1])
    later(made.cluster)
    rows = read_table(made.pd, f"app.{name}")
    assert [row["id"] for row in rows] == ([1, 2, 3] if primary == "committed" else [1])


def test_what_cannot_be_read(made: Made) -> None:
    with pytest.raises(SchemaError, match=r"there is no table app\.man at .*\n +Did you mean app\.many\?"):
        read_table(made.pd, "app.man")
    with pytest.raises(ConfigError, match=r"app\.many has no column vv; did you mean `v`"):
        read_table(made.pd, "app.many", columns="vv")
    with pytest.raises(SchemaError, match=r"app\.many: column id is int64, which cannot be read as struct"):
        table_reader(made.pd, "app.many", schema=StructType([StructField("id", StructType([]))]))


def test_a_ts_below_the_gc_safe_point() -> None:
    with PlaygroundThread(6) as cluster:
        cluster.execute("CREATE DATABASE app; CREATE TABLE app.t (id INT PRIMARY KEY); INSERT INTO app.t VALUES (1)")
        store = cluster.playground.cluster
        ts = cluster.call(store.oracle.next)
        reader = table_reader(cluster.pd_address, "app.t", asOfTs=str(ts))
        (partition,) = reader.partitions()
        later(cluster)
        cluster.call(store.collect_garbage, 1000)
        for work in (
            lambda: read_table(cluster.pd_address, "app.t", asOfTs=str(ts)),
            reader.partitions,
            lambda: list(reader.read(partition)),
        ):
            with pytest.raises(StartTsBeforeGc, match=r"may have been garbage collected: TiDB keeps only .*\n +Choose a later asOfTs"):
                work()
        assert read_table(cluster.pd_address, "app.t") == [{"id": 1}]
