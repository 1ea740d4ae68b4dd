"""DDLs on a running playground with rows written before, between and after their steps, and a record of every row that was written.

Each case has databases of its own. Around each step of a DDL some transactions commit at the step's commit ts, one before and one
behind it: prewritten before the step, as transactions are that know the schema before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from tidemill.errors import SqlError
from tidemill.playground.server import Playground
from tidemill.playground.sql.catalog import Table
from tidemill.playground.sql.rows.dml import Dml
from tidemill.playground.sql.rows.transaction import Transaction
from tidemill.playground.sql.session import Session
from tidemill.playground.store.cluster import Pending
from tidemill.tidb import keys
from tidemill.tidb.schema.codes import SchemaState

T = "create table {d}.t (id bigint primary key, v varchar(100), c int)"
U = "create table {d}.u (id bigint primary key, v varchar(100), c int)"
P = """create table {d}.p (id bigint primary key, v varchar(100), c int) partition by range (id) (partition p0 values less than (1000),
    partition p1 values less than (2000), partition p2 values less than (3000))"""
HIGH = 3000


@dataclass(frozen=True, slots=True)
class Case:
    """`before` is there when the capture begins; `{d}` stands for the case's database."""

    name: str
    before: tuple[str, ...]
    ddls: tuple[str, ...]
    plain: tuple[int, int] = (0, HIGH)  # ids in tables without partitions

    @property
    def database(self) -> str:
        return f"c_{self.name}"

    def owns(self, database: str) -> bool:
        """Whether it is one of the case's databases."""
        return database in (self.database, f"{self.database}_two", f"{self.database}_back")


CASES = (
    Case("truncate", (T,), ("truncate table {d}.t", "truncate table {d}.t")),
    Case("truncate_partitioned", (P,), ("truncate table {d}.p",)),
    Case("drop", (T, U, P), ("drop table {d}.t", "drop table {d}.p")),
    Case("recover", (T,), ("drop table {d}.t", "recover table {d}.t")),
    Case("recover_partitioned", (P,), ("drop table {d}.p", "recover table {d}.p", "alter table {d}.p truncate partition p1")),
    Case("flashback_table", (T,), ("drop table {d}.t", "flashback table {d}.t to back")),
    Case("flashback_truncated", (T,), ("truncate table {d}.t", "flashback table {d}.t to old")),
    Case("flashback_database", (T, P), ("drop database {d}", "flashback database {d}", "alter table {d}.t add column e int")),
    Case("flashback_database_to", (T, P), ("drop database {d}", "flashback database {d} to {d}_back")),
    Case("rename", (T,), ("rename table {d}.t to {d}.renamed",)),
    Case("swap", (T, U), ("rename table {d}.t to {d}.tmp, {d}.u to {d}.t, {d}.tmp to {d}.u",)),
    Case("across", (T, P, "create database {d}_two"), ("rename table {d}.t to {d}_two.t", "alter table {d}.p rename {d}_two.p2")),
    Case("swap_across", (T, U, "create database {d}_two"), ("rename table {d}.t to {d}_two.x, {d}.u to {d}.t, {d}_two.x to {d}_two.u",)),
    Case(
        "exchange",
        (P, T),
        ("alter table {d}.p exchange partition p1 with table {d}.t", "alter table {d}.p exchange partition p1 with table {d}.t"),
        (1000, 2000),
    ),
    Case(
        "exchange_without_validation", (P, T), ("alter table {d}.p exchange partition p0 with table {d}.t without validation",), (0, 1000)
    ),
    Case("exchange_and_drop", (P, T), ("alter table {d}.p exchange partition p2 with table {d}.t", "drop table {d}.t"), (2000, HIGH)),
    Case("truncate_partition", (P,), ("alter table {d}.p truncate partition p1", "alter table {d}.p truncate partition p0, p2")),
    Case(
        "reorganize",
        (P,),
        (
            """alter table {d}.p reorganize partition p0, p1 into (partition a values less than (500), partition b values less than (1500),
            partition c values less than (2000))""",
            "alter table {d}.p reorganize partition a, b into (partition ab values less than (1500))",
        ),
    ),
    Case(
        "add_drop_partition",
        (P,),
        ("alter table {d}.p add partition (partition p3 values less than (4000))", "alter table {d}.p drop partition p1"),
    ),
    Case(
        "partition_by",
        (T,),
        ("alter table {d}.t partition by hash (id) partitions 3", "alter table {d}.t partition by key (id) partitions 2"),
    ),
    Case("remove_partitioning", (P,), ("alter table {d}.p remove partitioning",)),
    Case(
        "multi_schema",
        (T,),
        (
            "alter table {d}.t add column e int default 5, add column f varchar(10) default 'x', drop column c",
            "alter table {d}.t drop column e, modify column f varchar(90)",
        ),
    ),
    Case("add_column", (T,), ("alter table {d}.t add column e int not null default 77", "alter table {d}.t add column f int first")),
    Case("modify_column", (T,), ("alter table {d}.t modify column c varchar(20)", "alter table {d}.t modify column v varchar(200)")),
    Case("drop_column", (T,), ("alter table {d}.t drop column c",)),
    Case("rename_column", (T,), ("alter table {d}.t rename column c to cc", "alter table {d}.t change column cc c3 bigint")),
    Case("index", (T,), ("alter table {d}.t add unique index ui (id)", "alter table {d}.t drop index ui")),
    Case("like", (P, T), ("create table {d}.t2 like {d}.t", "create table {d}.p2 like {d}.p")),
    Case("create", (), (T, P, "create database {d}_two", "create table {d}_two.n (id bigint primary key, v varchar(100))")),
    Case(
        "chain",
        (T,),
        (
            "rename table {d}.t to {d}.n",
            "truncate table {d}.n",
            "alter table {d}.n partition by hash (id) partitions 2",
            "rename table {d}.n to {d}.t",
        ),
    ),
)


class Write(NamedTuple):
    """A row as it was written: table, commit ts, operation, key and value."""

    commit_ts: int
    name: str  # schema.table
    op: str  # insert, update, delete
    id: int
    v: str
    columns: tuple[str, ...]


@dataclass
class Writer:
    """Runs cases. `writes` is what has to be delivered, each once."""

    playground: Playground
    random: Random
    writes: list[Write] = field(default_factory=list)
    ddls: list[str] = field(default_factory=list)
    pause: float = 0.02
    _next: int = 0
    _ids: dict[bytes, tuple[int, str]] = field(default_factory=dict)  # record key → id, v

    def prepare(self, cases: tuple[Case, ...]) -> None:
        """Run the statements of `before`."""
        for case in cases:
            self.playground.execute(f"create database {case.database}")
            for sql in case.before:
                self.playground.execute(sql.format(d=case.database))
            self.burst(case)

    async def run(self, case: Case) -> None:
        """The case's DDLs."""
        for template in case.ddls:
            sql = template.format(d=case.database)
            self.ddls.append(sql)
            self.burst(case)
            steps = self.session().steps(sql)
            while self._step(case, steps):
                self.burst(case)
                await asyncio.sleep(self.random.random() * self.pause)
            self.burst(case)
            await asyncio.sleep(self.random.random() * self.pause)

    def session(self) -> Session:
        session = self.playground.database.session()
        session.settings.one_phase = self.random.random() < 0.5
        return session

    def tables(self, case: Case) -> list[Table]:
        """The case's tables that take rows."""
        catalog = self.playground.database.catalog
        found = [t for t in catalog.tables.values() if case.owns(catalog.schema_name(t.schema_id))]
        return [t for t in found if t.info["state"] == SchemaState.PUBLIC]

    # rows

    def burst(self, case: Case) -> None:
        """A transaction for each table, and one for all."""
        for table in self.tables(case):
            self._transact(case, [table])
        self._transact(case, self.tables(case))

    def _transaction(self) -> tuple[Transaction, Dml]:
        database = self.playground.database
        transaction = Transaction(database.cluster, one_phase=self.random.random() < 0.5)
        return transaction, Dml(database.cluster, database.catalog, transaction, database.now())

    def _transact(self, case: Case, tables: list[Table]) -> None:
        transaction, dml = self._transaction()
        made: list[tuple[Table, str, int, str]] = []
        for table in tables:
            known = [key for key in self._ids if keys.parse_record_key(key).table_id in table.model.physical_ids]
            self.random.shuffle(known)
            made += [(table, "insert", *self._insert(dml, table, case)) for _ in range(3)]
            if known:
                made.append((table, "update", *self._update(dml, table, known.pop())))
            if known and self.random.random() < 0.5:
                made.append((table, "delete", *self._delete(dml, table, known.pop())))
        commit_ts = transaction.commit()
        self.writes += [self._written(commit_ts, table, op, id_, v) for table, op, id_, v in made if id_ >= 0]

    def _written(self, commit_ts: int, table: Table, op: str, id_: int, v: str) -> Write:
        name = self.playground.database.catalog.qualified(table)
        return Write(commit_ts, name, op, id_, v, tuple(sorted(c.name for c in table.codec.public)))

    def _column(self, table: Table, name: str) -> int:
        return next(c.id for c in table.codec.given if c.name == name)

    def _insert(self, dml: Dml, table: Table, case: Case) -> tuple[int, str]:
        """A new row somewhere in the key range; id -1 where no partition takes it."""
        self._next += 1
        low, high = (0, HIGH) if table.model.partitioning else case.plain
        id_ = low + (self._next * 7919) % (high - low)
        v = f"{self._next}"
        try:
            key = dml.insert_plain(table, {self._column(table, "id"): id_, self._column(table, "v"): v.encode()})
        except SqlError:  # the id is there already, or its partition is not
            return -1, v
        self._ids[key] = id_, v
        return id_, v

    def _update(self, dml: Dml, table: Table, key: bytes) -> tuple[int, str]:
        self._next += 1
        id_, v = self._ids[key][0], f"{self._next}"
        if not dml.exists(key):
            return -1, v
        dml.update_key(table, key, {self._column(table, "v"): v.encode()})
        self._ids[key] = id_, v
        return id_, v

    def _delete(self, dml: Dml, table: Table, key: bytes) -> tuple[int, str]:
        id_, v = self._ids[key]
        if not dml.exists(key):
            return -1, v
        dml.delete_key(table, key)
        del self._ids[key]
        return id_, v

    # a step of a DDL with transactions around its commit ts

    def _step(self, case: Case, steps: Iterator[None]) -> bool:
        """Run one step; False when there is none left."""
        waiting = [found for table in self.tables(case) for _ in range(3) if (found := self._prewrite(case, table)) is not None]
        before = self._meta_ts()
        going = next(steps, False) is None
        at = self._meta_ts()
        for i, (pending, table, id_, v) in enumerate(waiting):
            if at == before:
                self._commit(pending, self.playground.cluster.oracle.next(), table, id_, v)
            elif i % 3 < 2:
                self._commit(pending, at - 1 + i % 3, table, id_, v)
            else:
                self._commit(pending, at + 1, self._table_of(pending.keys), id_, v)
        return going

    def _meta_ts(self) -> int:
        """Return the commit ts of the last change of a description."""
        tablet = self.playground.cluster.mvcc.tablet(b"m")
        return max(history[-1][0] for key, history in tablet.items(b"mDB", b"mDC") if b"Table:" in key)

    def _prewrite(self, case: Case, table: Table) -> tuple[Pending, Write, int, str] | None:
        transaction, dml = self._transaction()
        id_, v = self._insert(dml, table, case)
        if id_ < 0:
            return None
        mutations = transaction.mutations()
        return self.playground.cluster.prewrite(mutations), self._written(0, table, "insert", id_, v), id_, v

    def _table_of(self, written: tuple[bytes, ...]) -> Write | None:
        """What a row of these keys (its own, then copies for a reorganisation) is now; None where no table has them."""
        ids = {keys.parse_record_key(key).table_id for key in written}
        for table in self.playground.database.catalog.tables.values():
            if ids & set(table.model.physical_ids) and table.info["state"] == SchemaState.PUBLIC:
                return self._written(0, table, "insert", 0, "")
        return None

    def _commit(self, pending: Pending, commit_ts: int, like: Write | None, id_: int, v: str) -> None:
        """Commit a row at this ts, if a table like that exists then; else roll it back."""
        cluster = self.playground.cluster
        if like is None:
            cluster.rollback(pending)
            for key in pending.keys:
                self._ids.pop(key, None)
            return
        cluster.commit(pending, commit_ts)
        self.writes.append(like._replace(commit_ts=commit_ts, id=id_, v=v))
