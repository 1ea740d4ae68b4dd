"""Workloads: the seed alone decides what they write. The loader: the same, fast."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from tidemill.errors import SqlError
from tidemill.playground.server import Playground
from tidemill.playground.store.truth import tables_at
from tidemill.playground.workload.mixed import Options
from tidemill.playground.workload.names import WORKLOADS


def run(name: str, seed: int, transactions: int = 150, **options: object) -> Playground:
    playground = Playground(seed, stores=3)
    workload = playground.prepare(name, Options(**options))  # type: ignore[arg-type]
    while workload.progress.transactions < transactions:
        workload.act()
    workload.settle()
    return playground


def content(playground: Playground) -> str:
    tables = [(name, table.rows) for name, table in playground.tables_at().items()]
    regions = [(r.id, r.version, r.leader.store_id) for r in playground.cluster.regions]
    return hashlib.sha256(repr((tables, regions)).encode()).hexdigest()


@pytest.mark.parametrize("name", ["mixed", "bank", "append"])
def test_the_seed_decides(name: str) -> None:
    first, again = run(name, 7, ddl_every=20), run(name, 7, ddl_every=20)
    assert content(first) == content(again)
    assert first.workload is not None
    assert again.workload is not None
    assert first.workload.progress == again.workload.progress


def test_another_seed_writes_something_else() -> None:
    assert content(run("mixed", 1, 40)) != content(run("mixed", 2, 40))


def test_the_sum_of_a_bank_never_changes() -> None:
    playground = Playground(3)
    workload = playground.prepare("bank", Options(region_every=10))
    moments = []
    for _ in range(60):
        workload.act()
        moments.append(playground.cluster.oracle.next())
    for ts in moments:
        tables = tables_at(playground.cluster.mvcc, ts)
        balances = [row["balance"] for table in tables.values() for row in table.rows]
        assert len(balances) == 200
        assert sum(b for b in balances if isinstance(b, int)) == 200 * 1000


def test_the_mixed_workload_does_everything() -> None:
    playground = run("mixed", 5, 400, ddl_every=15, region_every=20, lock_every=30)
    assert playground.workload is not None
    progress = playground.workload.progress
    assert progress.ddls > 10
    assert progress.region_changes > 10
    assert len(playground.tables_at()) == 12
    assert not playground.cluster.mvcc.locks


def test_only_some_tables() -> None:
    playground = run("mixed", 1, 10, tables=("shop.items", "kinds.all_types"), ddl_every=0)
    assert list(playground.tables_at()) == [("kinds", "all_types"), ("shop", "items")]


def test_unknown_workloads_are_named() -> None:
    with pytest.raises(SqlError, match="mixed, bank"):
        Playground().prepare("nope")
    assert set(WORKLOADS) == {"mixed", "bank", "append", "soak", "none"}


@pytest.mark.parametrize(("limit", "expected"), [({"transactions": 30}, 30), ({"seconds": 0.3, "rate": 50.0}, None)])
def test_work_ends_at_its_limits(limit: dict[str, float], expected: int | None) -> None:
    async def work() -> int:
        async with Playground(1) as playground:
            workload = playground.prepare("bank")
            await playground.work(**limit)  # type: ignore[arg-type]
            return workload.progress.transactions

    done = asyncio.run(work())
    assert done == expected if expected is not None else 0 < done <= 50


# the loader


KINDS = """id bigint primary key auto_increment, a int unique, b varchar(30), c decimal(20,5), d datetime(6), e enum('x','y'), f float,
    j json, h bit(7), k varbinary(9), l bigint unsigned, m smallint, o time(3), p year, q date not null, r text, s set('u','v'),
    t timestamp(3) null"""


def test_loaded_rows_are_ordinary_rows() -> None:
    playground = Playground(4)
    playground.execute(f"create database d; use d; create table t ({KINDS}); create table h (v int, w varchar(8))")
    before = playground.cluster.oracle.next()
    playground.load("d.t", 500, regions=3)
    playground.load("d.t", 500)
    playground.load("d.h", 100)
    rows = playground.tables_at()["d", "t"].rows
    assert [row["id"] for row in rows] == list(range(1, 1001))
    assert len({row["a"] for row in rows}) == 1000
    assert len({row["b"] for row in rows}) == 1000
    assert len({row["c"] for row in rows}) > 20
    assert not playground.tables_at(before)["d", "t"].rows
    assert len(playground.tables_at()["d", "h"].rows) == 100
    playground.execute(
        "update t set b = 'changed' where id in (1, 700); delete from t where id = 2; insert into t (b, q) values ('new', '2020-01-01')"
    )
    shown = playground.execute("select id, b from t where id in (1, 2, 700, 1001)").rows
    assert shown == ((1, "changed"), (700, "changed"), (1001, "new"))
    with pytest.raises(SqlError, match="duplicate"):
        playground.execute("insert into t (id, q) values (5, '2020-01-01')")


def test_the_seed_decides_what_is_loaded() -> None:
    def loaded(seed: int) -> list[object]:
        playground = Playground(seed)
        playground.execute(f"create table t ({KINDS})")
        playground.load("test.t", 50)
        return list(playground.tables_at()["test", "t"].rows)

    assert loaded(1) == loaded(1)
    assert loaded(1) != loaded(2)


@pytest.mark.parametrize(
    "table",
    ["(a varchar(5) primary key)", "(id int primary key) partition by hash (id) partitions 2", "(id int primary key, g int as (id + 1))"],
)
def test_tables_that_cannot_be_loaded_are_refused(table: str) -> None:
    playground = Playground()
    playground.execute(f"create table t {table}")
    with pytest.raises(SqlError, match="bulk"):
        playground.load("test.t", 5)
