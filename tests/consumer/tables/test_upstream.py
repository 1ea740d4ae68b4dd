"""Tables fed with messages hold what the upstream holds, after every kind of DDL that touches rows that are there."""

from __future__ import annotations

import pytest

from tests.support.consumer.fed_tables import BEFORE, differences
from tests.support.consumer.upstreams import playground_with

DDLS = {
    "nothing": "",
    "add column": "alter table d.t add column n int not null default 8; insert into d.t values (5, 5, 'x', 5, 5)",
    "add first": "alter table d.t add column n varchar(9) default 'new' first",
    "add many kinds": "alter table d.t add column c1 bigint unsigned not null default 7; alter table d.t add column c2 datetime(3);"
    "alter table d.t add column c3 enum('a','b','c') not null default 'b'; alter table d.t add column c4 set('x','y') default 'x';"
    "alter table d.t add column c5 bit(9) default b'101'; alter table d.t add column c6 year default 2020;"
    "alter table d.t add column c7 date not null default '2020-02-20'; alter table d.t add column c8 decimal(12,3) not null default 1.5;"
    "alter table d.t add column c9 double default 0.25; alter table d.t add column c10 varbinary(20); alter table d.t add column c11 json;"
    "alter table d.t add column c12 time not null; alter table d.t add column c13 varchar(5) not null;"
    "alter table d.t add column c14 datetime not null; alter table d.t add column c15 text;"
    "update d.t set c2 = '2021-01-01 01:01:01.5' where id = 1",
    "drop column": "alter table d.t drop column b",
    "add and drop": "alter table d.t add column n int default 1, drop column a",
    "add again": "alter table d.t drop column b; alter table d.t add column b varchar(20) default 'again'",
    "rename column": "alter table d.t rename column b to bb; update d.t set bb = 'z' where id = 1",
    "rename a key column": "alter table d.t rename column id to ident;"
    "update d.t set b = 'z' where ident = 1; delete from d.t where ident = 4",
    "change column": "alter table d.t change column b bb varchar(30) after id; update d.t set bb = 'z' where id = 1",
    "change type": "alter table d.t modify column a varchar(20)",
    "change type and back": "alter table d.t modify column a varchar(20); alter table d.t modify column a int;"
    "update d.t set a = 3 where id = 7",
    "widen": "alter table d.t modify column a bigint",
    "more digits": "alter table d.t modify column c decimal(12,4)",
    "rename table": "rename table d.t to d.t2; insert into d.t2 values (9, 9, 'nine', 9)",
    "rename two": "rename table d.t to d.t2, d.plain to d.plain2; update d.plain2 set v = 7",
    "swap": "rename table d.t to d.tmp, d.plain to d.t, d.tmp to d.plain; insert into d.t values (55, 5)",
    "rename to another schema": "create database e; rename table d.t to e.t; insert into e.t values (9, 9, 'nine', 9)",
    "rename and create again": "rename table d.t to d.t2; create table d.t (id int primary key, z int); insert into d.t values (1, 2)",
    "truncate": "truncate table d.t; insert into d.t values (1, 2, 'back', 3)",
    "drop and create": "drop table d.t; create table d.t (id int primary key); insert into d.t values (77)",
    "drop schema": "drop database d",
    "drop schema and create": "drop database d; create database d; create table d.t (id int primary key); insert into d.t values (77)",
    "index": "alter table d.t add index i (a)",
    "comment": "alter table d.t comment 'c'",
    "add partition": "alter table d.l add partition (partition c values in (31)); insert into d.l values (31, 1); "
    "alter table d.l truncate partition c",
    "drop partition": "alter table d.p drop partition p1; insert into d.p values (12, 5)",
    "drop list partition": "alter table d.l drop partition a",
    "truncate partition": "alter table d.p truncate partition p1; insert into d.p values (12, 5)",
    "truncate hash partition": "alter table d.h truncate partition p1",
    "reorganize": "alter table d.p reorganize partition p0, p1 into (partition p0 values less than (5), "
    "partition p1 values less than (20)); update d.p set v = 2 where id = 11",
    "reorganize, then truncate": "alter table d.p reorganize partition p0, p1 into (partition p0 values less than (12), "
    "partition p1 values less than (20)); alter table d.p truncate partition p0",
    "exchange": "alter table d.p exchange partition p1 with table d.plain; update d.p set v = 1 where id = 12; "
    "update d.plain set v = 4 where id = 11; alter table d.p truncate partition p1",
    "remove partitioning": "alter table d.p remove partitioning; insert into d.p values (5, 5)",
    "partition by": "alter table d.plain partition by hash (id) partitions 2; alter table d.plain truncate partition p0",
    "unique values change places": "begin; update d.u set n = 99 where id = 1; update d.u set n = 10 where id = 2; "
    "update d.u set n = 20 where id = 1; commit",
    "keys change places": "begin; update d.u set id = 99 where id = 1; update d.u set id = 1 where id = 2; "
    "update d.u set id = 2 where id = 99; commit; update d.u set e = 'w' where id = 1",
}  # fmt: skip


@pytest.mark.parametrize("name", DDLS)
def test_every_ddl_does_to_rows_what_it_did_upstream(name: str) -> None:
    assert differences(playground_with(BEFORE + DDLS[name])) == []


@pytest.mark.parametrize(
    ("name", "lost"),
    [("add column", "ALTER"), ("truncate", "TRUNCATE"), ("rename table", "RENAME"), ("drop partition", "ALTER"), ("exchange", "ALTER")],
)
def test_a_ddl_that_is_missing_shows(name: str, lost: str) -> None:
    assert differences(playground_with(BEFORE + DDLS[name]), without=lost)
