"""The workload of a soak: everything that may happen to tables while they are written, and locks of clients that die.

Beside the DDLs of the mixed workload there are *stories*, sequences of DDLs with rows written at once behind each: tables that are filled
as soon as they are there, dropped and recovered, renamed in circles and across databases, exchanged with partitions, partitioned again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tidemill.errors import SqlError
from tidemill.playground.sql.parse.ast import TableName
from tidemill.playground.sql.session import Database
from tidemill.playground.store.cluster import Pending
from tidemill.playground.store.mvcc import KeyLocked, LockKind, TxnLockNotFound, WriteConflict
from tidemill.playground.workload.actors import TableActor
from tidemill.playground.workload.mixed import Mixed, Options, due
from tidemill.playground.workload.schemas import MIXED_TABLES

MIXED = ("shop.users", "shop.items", "logs.events", "logs.metrics", "logs.visits", "kinds.computed")
COLUMNS = "(id bigint primary key, k int, v varchar(200))"
TABLES = {
    "one": {
        "a": f"create table a {COLUMNS}",
        "b": f"create table b {COLUMNS}",
        "p": f"""create table p {COLUMNS} partition by range (id) (partition p0 values less than (250), partition p1 values less than (500),
            partition p2 values less than (750), partition p3 values less than maxvalue)""",
        "q": f"""create table q {COLUMNS} partition by range (id) (partition q0 values less than (300),
            partition q1 values less than (600), partition q2 values less than (1000))""",
        "h": f"create table h {COLUMNS}",
    },
    "two": {"c": f"create table c {COLUMNS}"},
}
BLOBS = "create table blobs (id bigint primary key auto_increment, v longblob)"
PIECE = 100
"""Rows of a large transaction that are prewritten, or committed, at a time."""
ORPHAN_TTL_MS = (0, 300, 1500)


@dataclass(frozen=True, slots=True)
class Ddl:
    """A DDL of a story: its steps run between other transactions."""

    sql: str


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that a story writes right after its last step, with no other transaction in between."""

    table: str
    count: int = 10
    low: int = 0
    high: int = 1000


Story = Iterator[Ddl | Rows]


class Soak(Mixed):
    """See the module."""

    def __init__(self, database: Database, seed: int, options: Options) -> None:
        super().__init__(database, seed, options)
        self._story: Story | None = None
        self._large: Iterator[None] | None = None
        self._waiting = False  # a DDL waits for locks to end
        self._stories: tuple[Callable[[], Story], ...] = (
            self._fill, self._fill_like, self._swap, self._move, self._recover, self._flashback, self._exchange, self._partitions,
            self._partition_by, self._several, self._database,
        )  # fmt: skip
        self._menu: list[TableActor] = []

    def prepare(self) -> None:
        session = self.database.session()
        mixed = {f"{schema}.{name}": sql for schema, tables in MIXED_TABLES.items() for name, sql in tables.items()}
        for name in MIXED:
            schema, _, table = name.partition(".")
            session.execute(f"create database if not exists {schema}; use {schema}; {mixed[name]}")
            self._menu.append(self._actor(schema, table))
        for schema, tables in TABLES.items():
            session.execute(f"create database if not exists {schema}; use {schema}")
            for table, sql in tables.items():
                session.execute(sql)
                self._actor(schema, table)
        session.execute(f"use two; {BLOBS}")
        for actor in self.actors:
            self._write([actor], 20)

    def _actor(self, schema: str, table: str) -> TableActor:
        actor = TableActor(self.database, TableName(schema, table), self.random)
        self.actors.append(actor)
        return actor

    # what happens

    def act(self) -> None:
        random = self.random
        if self._large is not None and random.random() < 0.5:
            self._advance_large()
        elif self._story is not None and self._ddl is None and self._is_free() and random.random() < 0.3:
            self._tell()
        elif self._waiting and self._ddl is None and random.random() < 0.3:
            self._start_ddl()
        elif (
            not self._waiting
            and self._ddl is None
            and self._held is None
            and due(self.options.orphan_every, self.progress.transactions, random)
        ):
            self._orphan()
        elif (
            not self._waiting
            and self._ddl is None
            and self._large is None
            and due(self.options.large_every, self.progress.transactions, random)
        ):
            self._large = self._large_transaction()
        else:
            super().act()

    def settle(self) -> None:
        """Finish what is under way. Orphan locks stay, for others to resolve."""
        while self._large is not None:
            self._advance_large()
        super().settle()
        self._story = None

    def recover(self) -> None:
        super().recover()
        self._story = self._large = None
        self._waiting = False

    def _is_free(self) -> bool:
        """Whether no transaction is under way: DDLs wait for those that know the schema before. Now and then orphan locks are resolved
        here, as another client than the capture would."""
        if self.random.random() < 0.1 and self._held is None and self._large is None:
            self.database.cluster.resolve_orphans()
        return self._large is None and self._held is None and not any(lock.holds_back for lock in self.database.cluster.mvcc.locks.values())

    def _start_ddl(self) -> None:
        if self._story is not None:
            return
        self._waiting = not self._is_free()
        if self._waiting:
            return
        if self.random.random() < 0.35:
            actors, self.actors = self.actors, self._menu
            super()._start_ddl()
            self.actors = actors
        else:
            self._story = self.random.choice(self._stories)()
            self._tell()

    def _tell(self) -> None:
        """Go on with the story up to its next DDL. A story that meets an obstacle ends."""
        assert self._story is not None
        try:
            while self._ddl is None:
                match next(self._story):
                    case Ddl(sql):
                        self._ddl = self.database.session().steps(sql)
                        self._advance()
                    case Rows() as rows:
                        self._put(rows)
        except StopIteration:
            self._story = None
        except SqlError:
            self._story = None
            self.progress.refused += 1

    def _advance(self) -> None:
        refused = self.progress.refused
        super()._advance()
        if self._ddl is None and self._story is not None:
            if self.progress.refused > refused:
                self._story = None
            else:
                self._behind()

    def _behind(self) -> None:
        """Write the rows that the story has right behind a DDL, if it has any."""
        assert self._story is not None
        try:
            part = next(self._story)
        except StopIteration:
            self._story = None
            return
        if isinstance(part, Rows):
            self._put(part)
        else:
            self._story = _again(part, self._story)

    def _put(self, rows: Rows) -> None:
        random = self.random
        keys = random.sample(range(rows.low, rows.high), rows.count)
        values = ",".join(f"({key},{random.randrange(1000)},'{random.choice('abcdef') * random.randint(1, 40)}')" for key in keys)
        try:
            self.database.session().execute(f"insert into {rows.table} values {values} on duplicate key update k = k + 1")
            self.progress.transactions += 1
            self.progress.rows += rows.count
        except SqlError:
            self.progress.refused += 1

    # stories

    def _name(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}{self._made}"

    def _one(self) -> str:
        return self.random.choice(("one.a", "one.b", "two.c"))

    def _fill(self) -> Story:
        name = self._name("n")
        yield Ddl(f"create table one.{name} {COLUMNS}")
        yield Rows(f"one.{name}", 60)
        self._actor("one", name)
        if self.random.random() < 0.5:
            yield Ddl(f"drop table one.{name}")
            self._forget(name)

    def _fill_like(self) -> Story:
        name = self._name("l")
        yield Ddl(f"create table two.{name} like one.{self.random.choice('apq')}")
        yield Rows(f"two.{name}", 40)
        yield Ddl(f"truncate table two.{name}")
        yield Rows(f"two.{name}", 40)
        yield Ddl(f"drop table two.{name}")

    def _forget(self, name: str) -> None:
        self.actors = [actor for actor in self.actors if actor.name.name != name]

    def _swap(self) -> Story:
        yield Rows("one.a")
        yield Ddl("rename table one.a to one.tmp, one.b to one.a, one.tmp to one.b")
        yield Rows("one.a")
        yield Rows("one.b")

    def _move(self) -> Story:
        yield Ddl("rename table one.a to two.a")
        yield Rows("two.a", 20)
        yield Ddl("rename table two.a to one.a")
        yield Rows("one.a", 20)

    def _recover(self) -> Story:
        name = self._one()
        schema = name.partition(".")[0]
        yield Rows(name)
        yield Ddl(f"drop table {name}")
        if self.random.random() < 0.5:
            yield Ddl(f"recover table {name}")
        else:
            yield Ddl(f"flashback table {name} to back")
            yield Rows(f"{schema}.back")
            yield Ddl(f"rename table {schema}.back to {name}")
        yield Rows(name)

    def _flashback(self) -> Story:
        name = self._one()
        schema = name.partition(".")[0]
        yield Ddl(f"truncate table {name}")
        yield Rows(name, 20)
        yield Ddl(f"flashback table {name} to kept")
        yield Rows(f"{schema}.kept")
        yield Ddl(f"drop table {schema}.kept")

    def _exchange(self) -> Story:
        name = self._name("e")
        yield Ddl(f"create table two.{name} {COLUMNS}")
        yield Rows(f"two.{name}", 30, 250, 500)
        yield Rows("one.p", 30)
        yield Ddl(f"alter table one.p exchange partition p1 with table two.{name}")
        yield Rows("one.p", 30)
        yield Rows(f"two.{name}", 30, 250, 500)
        if self.random.random() < 0.7:
            yield Ddl(f"alter table one.p exchange partition p1 with table two.{name}")
            yield Rows("one.p", 30)
        yield Ddl(f"drop table two.{name}")

    def _partitions(self) -> Story:
        name = self._name("r")
        yield Ddl(f"alter table one.q add partition (partition {name} values less than ({1000 + 100 * self._made}))")
        yield Rows("one.q", 30, 900, 1000 + 100 * self._made)
        yield Ddl(f"alter table one.q truncate partition {name}")
        yield Rows("one.q", 30, 900, 1000 + 100 * self._made)
        bounds = f"(partition q0 values less than ({self.random.randint(100, 500)}), partition q1 values less than (600))"
        yield Ddl(f"alter table one.q reorganize partition q0, q1 into {bounds}")
        yield Rows("one.q", 60)
        yield Ddl(f"alter table one.q drop partition {name}")
        yield Rows("one.q", 30)

    def _partition_by(self) -> Story:
        yield Rows("one.h", 30)
        yield Ddl(f"alter table one.h partition by hash (id) partitions {self.random.randint(2, 4)}")
        yield Rows("one.h", 60)
        yield Ddl("alter table one.h remove partitioning")
        yield Rows("one.h", 60)

    def _several(self) -> Story:
        first, second = self._name("m"), self._name("m")
        yield Ddl(
            f"alter table one.h add column {first} int default 3, add column {second} varchar(20) default 'x', add index i_{first} (k)"
        )
        yield Ddl(f"alter table one.h drop column {first}, modify column {second} varchar(50), drop index i_{first}")
        yield Ddl(f"alter table one.h drop column {second}")
        yield Rows("one.h")

    def _database(self) -> Story:
        name = self._name("d")
        yield Ddl(f"create database {name}")
        yield Ddl(f"create table {name}.t {COLUMNS}")
        yield Rows(f"{name}.t", 30)
        yield Ddl(f"drop database {name}")
        other = self.random.choice((name, f"{name}_back"))
        yield Ddl(f"flashback database {name} to {other}")
        yield Rows(f"{other}.t", 30)
        if self.random.random() < 0.5:
            yield Ddl(f"drop database {other}")

    # transactions that end late, or whose client never ends them

    def _orphan(self) -> None:
        """Leave the locks of a client that dies in the middle of its transaction."""
        cluster, random = self.database.cluster, self.random
        rows: dict[bytes, bytes | None] = {}
        for actor in random.sample(self.actors, random.randint(1, 3)):
            key = actor.some_key()
            newest = cluster.mvcc.tablet(key).newest(key) if key is not None else None
            if key is not None and newest is not None and newest[2] is not None:
                rows[key] = newest[2] if random.random() < 0.8 else None
        if not rows:
            return
        end = random.choice(("nothing", "nothing", "committed", "rolled back", "async", "async", "async lost", "pessimistic", "lock"))
        kind = {"pessimistic": LockKind.PESSIMISTIC, "lock": LockKind.LOCK}.get(end)
        try:
            pending = cluster.prewrite(
                list(rows.items()), kind=kind, ttl_ms=random.choice(ORPHAN_TTL_MS), async_commit=end.startswith("async")
            )
        except (KeyLocked, WriteConflict):
            return
        if end == "committed":
            cluster.commit(pending, keys=pending.keys[:1])
        elif end == "rolled back":
            cluster.rollback(pending, keys=pending.keys[:1])
        elif end == "async lost" and len(pending.keys) > 1:
            cluster.rollback(pending, keys=pending.keys[-1:])

    def _large_transaction(self) -> Iterator[None]:
        """Write a large transaction: it is prewritten and committed piece by piece, with others in between."""
        random, options = self.random, self.options
        transaction = self._transaction()
        dml = self._dml(transaction)
        table = self.database.session("two").table(TableName("two", "blobs"))
        column = next(c for c in table.codec.given if c.name == "v")
        for _ in range(options.large_rows):
            dml.insert_plain(table, {column.id: random.randbytes(random.randint(1, 2 * options.large_bytes))})
        mutations = transaction.mutations()
        cluster = self.database.cluster
        pending = Pending(transaction.start_ts, tuple(key for key, _ in mutations))
        for at in range(0, len(mutations), PIECE):
            cluster.prewrite(mutations[at : at + PIECE], start_ts=transaction.start_ts, primary=pending.keys[0])
            yield
        commit_ts = cluster.oracle.next()
        for at in range(0, len(mutations), PIECE):
            cluster.commit(pending, commit_ts, pending.keys[at : at + PIECE])
            yield
        self.progress.transactions += 1
        self.progress.rows += len(mutations)

    def _advance_large(self) -> None:
        assert self._large is not None
        try:
            if next(self._large, True):
                self._large = None
        except (KeyLocked, WriteConflict, TxnLockNotFound):  # a client that met its locks has ended it
            self._large = None
            self.progress.refused += 1


def _again(first: Ddl | Rows, rest: Story) -> Story:
    yield first
    yield from rest
