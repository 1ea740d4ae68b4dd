"""Tables made from what an upstream's log says, compared with the upstream's own."""

from __future__ import annotations

from itertools import groupby

from tests.support.consumer.upstreams import events, truth
from tidemill.consumer.order.progress import Progress
from tidemill.consumer.tables.sqlite import MEMORY, SqliteTables
from tidemill.demo.compare import Difference, compare
from tidemill.playground.server import Playground
from tidemill.protocols.open.events import DdlMessage, RowEvent


def apply(tables: SqliteTables, happened: list[RowEvent | DdlMessage]) -> None:
    """Apply events in the order given. Rows of one ts are one transaction."""
    for (_, is_ddl), group in groupby(happened, key=lambda e: (e.ts, isinstance(e, DdlMessage))):
        if is_ddl:
            for ddl in group:
                tables.ddl(ddl)  # type: ignore[arg-type]
        else:
            tables.rows(list(group))  # type: ignore[arg-type]
    tables.commit(Progress())


def differences(playground: Playground, *, without: str = "", keyless: bool = False) -> list[Difference]:
    """Apply everything, leaving out DDLs whose text begins so, and compare."""
    tables = SqliteTables(MEMORY)
    apply(
        tables,
        [e for e in events(playground, keyless=keyless) if not (without and isinstance(e, DdlMessage) and e.query.startswith(without))],
    )
    return list(compare(tables, truth(playground.tables_at(), keyless=keyless)))  # type: ignore[arg-type]


BEFORE = """
create database d;
create table d.t (id int primary key, a int default 5, b varchar(20), c decimal(8,2));
create table d.p (id int primary key, v int) partition by range (id)
  (partition p0 values less than (10), partition p1 values less than (20), partition p2 values less than maxvalue);
create table d.h (id int primary key, v int) partition by hash (id) partitions 3;
create table d.l (id int primary key, v int) partition by list (id)
  (partition a values in (1, 2, 3), partition b values in (11, 12));
create table d.plain (id int primary key, v int);
create table d.u (id int primary key nonclustered, e varchar(10), n int not null, unique key by_n (n));
insert into d.t values (1, 1, 'one', 1.5), (2, null, 'two', null), (3, 3, null, -3);
insert into d.p values (1, 1), (11, 11), (15, 15), (21, 21);
insert into d.h values (1, 1), (2, 2), (3, 3), (4, 4);
insert into d.l values (1, 1), (2, 2), (11, 11);
insert into d.plain values (12, 120), (13, 130);
insert into d.u values (1, 'x', 10), (2, 'y', 20), (3, 'z', 30);
update d.t set a = 9, b = 'uno' where id = 1;
update d.t set id = 7 where id = 2;
delete from d.t where id = 3;
insert into d.t values (4, 4, 'four', 4);
"""
