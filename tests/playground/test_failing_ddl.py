"""DDLs that fail half-way, that meet each other, and workloads that meet a fault: the playground goes on."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.support.schema.playground_history import history_of, replayed
from tidemill.errors import SqlError
from tidemill.playground.server import Playground
from tidemill.playground.sql.catalog import Table
from tidemill.playground.workload.mixed import Mixed, Options
from tidemill.tidb.keys import record_key
from tidemill.tidb.schema.codes import SchemaState


@pytest.fixture
def db() -> Playground:
    playground = Playground()
    playground.execute("create database d; use d; create table t (id bigint primary key, v varchar(20), b varbinary(20), n int)")
    playground.execute("insert into t values (1, 'abc', x'ff', 7), (5000, 'x', x'61', 7)")
    return playground


def table(db: Playground, name: str = "t") -> Table:
    return next(t for t in db.database.catalog.tables.values() if t.name == name)


FAILING = [
    "alter table t modify column v int",
    "alter table t modify column b text",
    "alter table t add column e int, modify column v bigint",
    "alter table t modify column v bigint, drop column n",
    "alter table t add unique index (n)",
    "alter table t add column e int after nothing",
    "alter table t add column e int, add index (nothing)",
    "alter table t partition by range (id) (partition p0 values less than (10))",
]


@pytest.mark.parametrize("sql", FAILING)
def test_a_ddl_that_fails_is_rolled_back(db: Playground, sql: str) -> None:
    """Nothing of it stays: the table can be written and changed as before, and the schema history sees no DDL."""
    start = db.cluster.oracle.next()
    before = table(db).info
    with pytest.raises(SqlError):
        db.execute(sql)
    info = table(db).info
    for member in ("cols", "index_info", "partition"):
        assert info[member] == before[member]
    assert info["max_col_id"] >= before["max_col_id"]
    db.execute("insert into t values (6, 'y', x'62', 8); alter table t drop column b; alter table t add column e int default 3")
    db.execute("update t set n = n + 1; alter table t modify column e bigint")
    history, now = history_of(db, start)
    assert [event.raw_query.split()[3] for event in history.ddl_events(start, now)] == ["drop", "add", "modify"]
    assert replayed(db, history, now) == {name: truth.rows for name, truth in db.tables_at().items()}


def test_the_column_below_a_failed_change_can_be_dropped(db: Playground) -> None:
    """What ended a playground after minutes: the hidden copy of the column stayed, and its source was gone."""
    session = db.database.session("d")
    steps = session.steps("alter table t modify column v int")
    next(steps)
    with pytest.raises(SqlError, match="no number"):
        [db.execute("update d.t set n = n + 1") for _ in steps]
    db.execute("alter table t drop column v; insert into t values (7, x'63', 8)")
    assert {column["state"] for column in table(db).info["cols"]} == {SchemaState.PUBLIC}
    assert [row["id"] for row in db.tables_at()["d", "t"].rows] == [1, 7, 5000]


def test_a_ddl_waits_for_the_one_that_its_table_has(db: Playground) -> None:
    session = db.database.session("d")
    steps = session.steps("alter table t modify column n varchar(9)")
    for _ in range(3):
        next(steps)
    db.execute("create table u (id int primary key); alter table u add column v int")  # about another table: waits for nothing
    assert any(column["state"] != SchemaState.PUBLIC for column in table(db).info["cols"])
    db.execute("alter table t drop column n")
    assert [column["name"]["O"] for column in table(db).info["cols"]] == ["id", "v", "b"]
    assert next(steps, "over") == "over"


def test_who_began_a_ddl_learns_that_it_failed_while_another_waited(db: Playground) -> None:
    session = db.database.session("d")
    steps = session.steps("alter table t modify column v int")
    next(steps)
    db.execute("drop table t")
    with pytest.raises(SqlError, match="no number"):
        next(steps)
    assert next(steps, "over") == "over"


def test_a_ddl_that_meets_a_lock_is_rolled_back(db: Playground) -> None:
    key = record_key(table(db).id, 1)
    value = db.cluster.mvcc.tablet(key).newest(key)[2]  # type: ignore[index]
    session = db.database.session("d")
    steps = session.steps("alter table t modify column n varchar(9)")
    for _ in range(4):
        next(steps)
    pending = db.cluster.prewrite([(key, value)])
    with pytest.raises(SqlError, match="write conflict"):
        list(steps)
    db.cluster.commit(pending)
    assert {column["state"] for column in table(db).info["cols"]} == {SchemaState.PUBLIC}


def test_a_fault_ends_neither_workload_nor_playground(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(*, go_on: bool) -> Playground:
        async with Playground(1) as playground:
            workload = playground.prepare("mixed", Options(ddl_every=5, lock_every=5))
            assert isinstance(workload, Mixed)
            write, faults = workload._write, [AssertionError("not what a cluster does"), StopIteration()]

            def failing(*arguments: object) -> None:
                if workload.progress.transactions >= 20 and faults and (workload.ddl_runs or workload._held):
                    raise faults.pop()
                write(*arguments)  # type: ignore[arg-type]

            monkeypatch.setattr(workload, "_write", failing)
            monkeypatch.setattr("tidemill.playground.server.AFTER_FAULT", 0.01)
            await playground.work(transactions=60, go_on=go_on)
            assert workload.progress.transactions == first + 60
            assert workload.progress.faults == 2
            assert not playground.cluster.mvcc.locks
            return playground

    first = 12  # transactions of the preparation
    with caplog.at_level(logging.ERROR):
        asyncio.run(work(go_on=True))
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert "not what a cluster does" in caplog.text
    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(work(go_on=False))


def test_a_lock_that_somebody_else_has_ended_stops_no_workload() -> None:
    playground = Playground(3)
    workload = playground.prepare("mixed", Options(ddl_every=0, lock_every=2))
    assert isinstance(workload, Mixed)
    ended = 0
    while workload.progress.transactions < 200:
        workload.act()
        if workload._held is not None:
            playground.cluster.rollback(workload._held[0])
            ended += 1
    assert ended > 10
    assert not playground.cluster.mvcc.locks
