"""A replica fed with rows and DDLs holds what the upstream holds, after every kind of DDL that touches rows that are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC

import pytest

from tidemill.demo.replica import Difference, Replica, RowChange, Value, compare, plain
from tidemill.playground.server import Playground
from tidemill.playground.truth import TruthTable
from tidemill.tidb.keys import parse_record_key
from tidemill.tidb.rows import RowReader
from tidemill.tidb.schema.history import SchemaHistory
from tidemill.tidb.schema.metakeys import meta_filter


def history_of(playground: Playground) -> SchemaHistory:
    """The schema history of everything the playground did."""
    mvcc, begin = playground.cluster.mvcc, playground.began_ts
    history = SchemaHistory.bootstrap(begin, [(k, v) for k, v in mvcc.scan(b"m", b"n", begin) if isinstance(v, bytes)])
    changes = [
        (0, 2 if value is None else 1, start_ts, commit_ts, key, value)
        for key, versions in mvcc.items(b"m", b"n")
        if meta_filter(key)
        for commit_ts, start_ts, value in versions
        if commit_ts > begin
    ]
    for table in history.job_table_ids:
        prefix = b"t" + (table ^ (1 << 63)).to_bytes(8, "big")
        changes += [
            (table, 2 if value is None else 1, start_ts, commit_ts, key, value)
            for key, versions in mvcc.items(prefix + b"_r", prefix + b"_s")
            for commit_ts, start_ts, value in versions
        ]
    history.advance(changes, playground.cluster.oracle.next())
    return history


def rows_of(playground: Playground, history: SchemaHistory) -> Iterator[RowChange]:
    """Every row change as it is delivered: read with the version in force."""
    for key, versions in playground.cluster.mvcc.items(b"t", b"u"):
        if key[9:11] != b"_r":
            continue
        record, old = parse_record_key(key), None
        for commit_ts, _, value in sorted(versions):
            version = history.snapshot(commit_ts - 1).by_physical.get(record.table_id)
            if version is not None and version.info.has_usable_key and (value or old):
                reader = RowReader(version.info, UTC)
                names = [c.name for c in version.info.output_columns]
                images = [
                    None if image is None else {n: plain(c) for n, c in zip(names, reader.read(key, image), strict=True)}
                    for image in (old, value)
                ]
                wanted = set(version.info.handle_key_columns)
                handle = tuple(sorted(c.name for c in version.info.output_columns if c.id in wanted))
                partition = record.table_id if version.info.partition is not None else None
                yield RowChange(commit_ts, version.name, partition, handle, *images)
            old = value


def differences(playground: Playground, *, without: str = "") -> list[Difference]:
    """Rebuild everything, leaving out DDLs whose text begins so, and compare."""
    history = history_of(playground)
    events = history.ddl_events(history.start_ts, history.resolved_ts)
    steps: list[tuple[int, int, object]] = [(change.ts, 0, change) for change in rows_of(playground, history)]
    steps += [(event.ts, 1, event) for event in events if not (without and event.query.startswith(without))]
    replica = Replica(UTC)
    for _, kind, step in sorted(steps, key=lambda s: s[:2]):
        replica.apply_ddl(step) if kind else replica.apply_row(step)  # type: ignore[arg-type]
    return list(compare(replica, truth(playground.tables_at())))


def truth(tables: Mapping[tuple[str, str], TruthTable]) -> dict[tuple[str, str], tuple[object, list[dict[str, Value]]]]:
    return {
        name: (table.info, [{column: plain(cell) for column, cell in row.items()} for row in table.rows])
        for name, table in tables.items()
        if table.info.has_usable_key
    }  # type: ignore[return-value]


BEFORE = """
create database d;
create table d.t (id int primary key, a int default 5, b varchar(20), c decimal(8,2));
create table d.p (id int primary key, v int) partition by range (id)
  (partition p0 values less than (10), partition p1 values less than (20), partition p2 values less than maxvalue);
create table d.h (id int primary key, v int) partition by hash (id) partitions 3;
create table d.plain (id int primary key, v int);
insert into d.t values (1, 1, 'one', 1.5), (2, null, 'two', null), (3, 3, null, -3);
insert into d.p values (1, 1), (11, 11), (15, 15), (21, 21);
insert into d.h values (1, 1), (2, 2), (3, 3), (4, 4);
insert into d.plain values (12, 120), (13, 130);
update d.t set a = 9, b = 'uno' where id = 1;
update d.t set id = 7 where id = 2;
delete from d.t where id = 3;
insert into d.t values (4, 4, 'four', 4);
"""

DDLS = {
    "add column": "alter table d.t add column n int not null default 8; insert into d.t values (5, 5, 'x', 5, 5)",
    "add first": "alter table d.t add column n varchar(9) default 'new' first",
    "drop column": "alter table d.t drop column b",
    "add and drop": "alter table d.t add column n int default 1, drop column a",
    "add again": "alter table d.t drop column b; alter table d.t add column b varchar(20) default 'again'",
    "rename column": "alter table d.t rename column b to bb; update d.t set bb = 'z' where id = 1",
    "change type": "alter table d.t modify column a varchar(20)",
    "widen": "alter table d.t modify column a bigint",
    "rename table": "rename table d.t to d.t2; insert into d.t2 values (9, 9, 'nine', 9)",
    "rename two": "rename table d.t to d.t2, d.plain to d.plain2; update d.plain2 set v = 7",
    "rename to another schema": "create database e; rename table d.t to e.t; insert into e.t values (9, 9, 'nine', 9)",
    "truncate": "truncate table d.t; insert into d.t values (1, 2, 'back', 3)",
    "drop and create": "drop table d.t; create table d.t (id int primary key); insert into d.t values (77)",
    "drop schema": "drop database d",
    "index": "alter table d.t add index i (a)",
    "comment": "alter table d.t comment 'c'",
    "drop partition": "alter table d.p drop partition p1; insert into d.p values (12, 5)",
    "truncate partition": "alter table d.p truncate partition p1; insert into d.p values (12, 5)",
    "reorganize": "alter table d.p reorganize partition p0, p1 into (partition p0 values less than (5), "
    "partition p1 values less than (20)); update d.p set v = 2 where id = 11",
    "reorganize, then truncate": "alter table d.p reorganize partition p0, p1 into (partition p0 values less than (12), "
    "partition p1 values less than (20)); alter table d.p truncate partition p0",
    "exchange": "alter table d.p exchange partition p1 with table d.plain; update d.p set v = 1 where id = 12; "
    "update d.plain set v = 4 where id = 11; alter table d.p truncate partition p1",
    "remove partitioning": "alter table d.p remove partitioning; insert into d.p values (5, 5)",
    "partition by": "alter table d.plain partition by hash (id) partitions 2; alter table d.plain truncate partition p0",
}


def playground_with(sql: str) -> Playground:
    playground = Playground(1)
    for statement in (BEFORE + sql).split(";"):
        if statement.strip():
            playground.execute(statement)
    return playground


@pytest.mark.parametrize("name", DDLS)
def test_every_ddl_does_to_the_replicas_rows_what_it_did_upstream(name: str) -> None:
    assert differences(playground_with(DDLS[name])) == []


@pytest.mark.parametrize(
    ("name", "lost"),
    [("add column", "ALTER"), ("drop column", "ALTER"), ("truncate", "TRUNCATE"), ("rename table", "RENAME"), ("drop partition", "ALTER")],
)
def test_a_ddl_that_is_missing_shows(name: str, lost: str) -> None:
    found = differences(playground_with(DDLS[name]), without=lost)
    # A column that the upstream does not have any more is not looked at.
    assert found or name == "drop column"


def change(ts: int, before: Mapping[str, Value] | None, after: Mapping[str, Value] | None) -> RowChange:
    return RowChange(ts, ("d", "t"), None, ("id",), before, after)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([change(1, None, {"id": 1, "a": 1})], "id=2 was not delivered"),
        ([change(1, None, {"id": i, "a": i}) for i in (1, 2, 3)], "id=3 was delivered but is not there"),
        ([change(1, None, {"id": 1, "a": 1}), change(1, None, {"id": 2, "a": 9})], "column a: delivered 9, upstream 2"),
        ([change(1, None, {"id": 1}), change(1, None, {"id": 2, "a": 2})], "delivered '(absent)'"),
    ],
)
def test_rows_that_differ_are_named(rows: list[RowChange], said: str) -> None:
    playground = Playground(1)
    for sql in ("create database d", "create table d.t (id int primary key, a int)", "insert into d.t values (1, 1), (2, 2)"):
        playground.execute(sql)
    replica = Replica(UTC)
    for row in rows:
        replica.apply_row(row)
    [found] = compare(replica, truth(playground.tables_at()))
    assert said in str(found)
    assert str(found).startswith("d.t: ")


def test_rows_of_a_table_that_is_not_there_are_named() -> None:
    replica = Replica(UTC)
    replica.apply_row(change(1, None, {"id": 1}))
    [found] = compare(replica, {})
    assert "not there" in str(found)


def test_applying_rows_again_changes_nothing() -> None:
    replica = Replica(UTC)
    rows = [change(1, None, {"id": 1, "a": 1}), change(2, {"id": 1, "a": 1}, {"id": 2, "a": 1}), change(3, {"id": 2, "a": 1}, None)]
    for row in [*rows[:2], *rows[:2], rows[1]]:
        replica.apply_row(row)
    assert list(replica.tables["d", "t"]) == [(2,)]
    replica.apply_row(rows[2])
    replica.apply_row(rows[2])
    assert replica.tables["d", "t"] == {}
