"""DDL jobs and table descriptions: step for step what a recorded TiDB wrote for the same statements."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.support.schema import ddl_traces as t
from tidemill.errors import SqlError
from tidemill.playground.server import Playground
from tidemill.tidb import keys
from tidemill.tidb.schema.tracking.history import job_table_id

UNSUPPORTED = ("sequence", "placement")


def lives(writes: list[t.Write]) -> dict[str, list[list[Any]]]:
    """The traces of all jobs by their statement."""
    described = t.tables(writes)
    by_id: dict[int, list[t.Job]] = {}
    for job in t.jobs(writes):
        by_id.setdefault(job.id, []).append(job)
    found: dict[str, list[list[Any]]] = {}
    for _, versions in sorted(by_id.items()):
        query = next(j.json["query"] for j in versions if j.json is not None)
        found.setdefault(query, []).append(t.trace(versions, described))
    return found


@functools.cache
def recorded() -> dict[str, list[list[Any]]]:
    return lives(t.recorded_writes())


@functools.cache
def played() -> dict[str, list[list[Any]]]:
    playground = Playground()
    after = playground.cluster.oracle.next()
    for sql in t.recorded_statements():
        try:
            playground.execute(sql)
        except SqlError:
            assert any(word in sql for word in UNSUPPORTED), sql
    return lives(t.playground_writes(playground.cluster, after))


STATEMENTS = [q for q in recorded() if not any(word in q for word in UNSUPPORTED)]


@pytest.mark.parametrize("sql", STATEMENTS)
def test_a_job_leaves_what_tidb_leaves(sql: str) -> None:
    assert played()[sql][0] == recorded()[sql][0]


def test_nothing_else_is_written() -> None:
    assert set(played()) == set(STATEMENTS)
    assert len(STATEMENTS) == 36


def test_the_job_table_is_described_as_tidb_does() -> None:
    playground = Playground()
    pairs = [(k, v) for k, v in playground.cluster.mvcc.scan(b"mDB", b"mDC", playground.cluster.oracle.next()) if isinstance(v, bytes)]
    assert job_table_id(pairs) == keys.DDL_JOB_TABLE_ID


def test_each_step_bumps_the_schema_version_first() -> None:
    playground = Playground()
    after = playground.cluster.oracle.next()
    playground.execute("create table t (id int primary key); alter table t add column v int")
    writes = t.playground_writes(playground.cluster, after)
    versions = [w for w in writes if w.key == keys.meta_string(b"SchemaVersionKey")]
    diffs = [w for w in writes if w.key.startswith(b"mDiff:")]
    assert len(versions) == len(diffs) == 1 + 4
    for version, diff in zip(versions, diffs, strict=True):
        assert diff.start_ts < version.commit_ts < diff.commit_ts


def test_a_failed_unique_index_rolls_its_job_back() -> None:
    playground = Playground()
    playground.execute("create table t (id int primary key, v int); insert into t values (1,1),(2,1)")
    after = playground.cluster.oracle.next()
    with pytest.raises(SqlError, match="duplicate entry"):
        playground.execute("alter table t add unique key u (v)")
    states = [j.json["state"] for j in t.jobs(t.playground_writes(playground.cluster, after)) if j.json is not None]
    assert states == [8, 1, 1, 1, 2, 3, 3]
    assert playground.execute("select count(*) from t").rows == ((2,),)
    playground.execute("alter table t add key plain (v)")


def test_tables_with_other_column_ids_are_not_exchanged() -> None:
    """As TiDB: stored rows name their columns by id, so the same columns made in another way do not fit."""
    playground = Playground()
    for sql in (
        "create database d",
        "create table d.p (a int primary key, b int) partition by range (a) (partition p0 values less than (10))",
        "create table d.t (a int primary key, x int)",
        "alter table d.t drop column x",
        "alter table d.t add column b int",
    ):
        playground.execute(sql)
    with pytest.raises(SqlError, match="different columns"):
        playground.execute("alter table d.p exchange partition p0 with table d.t")
