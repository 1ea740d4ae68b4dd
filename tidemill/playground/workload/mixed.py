"""Seeded workloads: what they write depends on the seed alone, not on time.

A workload is a sequence of actions: a transaction of rows, a step of a DDL, a change of regions, a lock that is held for a while.
Rows are written between the steps of a DDL, as they are in a busy cluster.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from tidemill.errors import SqlError
from tidemill.playground.sql.catalog import Table
from tidemill.playground.sql.parse.ast import TableName
from tidemill.playground.sql.rows.dml import Dml
from tidemill.playground.sql.rows.transaction import ONE_PHASE_KEYS, Transaction
from tidemill.playground.sql.session import Database
from tidemill.playground.store.cluster import CommitMode, Mutation, Pending
from tidemill.playground.workload.actors import TableActor
from tidemill.playground.workload.ddl_menu import DDLS
from tidemill.playground.workload.loader import RowMaker
from tidemill.playground.workload.schemas import BANK_TABLES, MIXED_TABLES
from tidemill.tidb import keys

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Progress:
    """What a workload has done."""

    transactions: int = 0
    rows: int = 0
    ddls: int = 0
    refused: int = 0  # statements that met a constraint or a lock
    region_changes: int = 0
    faults: int = 0  # faults of the playground itself; each is logged with its traceback


@dataclass(frozen=True, slots=True)
class Options:
    """How busy a workload is. `…_every` is the number of transactions between two of a kind; 0: never."""

    ddl_every: int = 120
    region_every: int = 150
    lock_every: int = 200
    rows: int = 4  # rows of a transaction, about
    orphan_every: int = 40  # clients that die in the middle of a transaction (soak)
    large_every: int = 0  # transactions of `large_rows` rows of about `large_bytes` bytes (soak)
    large_rows: int = 1000
    large_bytes: int = 1000
    tables: tuple[str, ...] = ()  # only these (`schema.table`); empty: all of the workload


class Workload(ABC):
    """Base of the workloads. `prepare` once, then `act` any number of times."""

    def __init__(self, database: Database, seed: int, options: Options) -> None:
        self.database, self.options = database, options
        self.random = Random(seed)
        self.progress = Progress()

    @abstractmethod
    def prepare(self) -> None:
        """Create databases, tables and first rows."""

    @abstractmethod
    def act(self) -> None:
        """Do one thing."""

    def settle(self) -> None:  # noqa: B027 most have nothing under way
        """Finish what is under way: a running DDL, a held lock."""

    def recover(self) -> None:  # noqa: B027
        """Go on after a fault. What the workload was doing is given up."""

    def _transaction(self) -> Transaction:
        return self.database.transaction(one_phase=self.random.random() < 0.7)

    def _dml(self, transaction: Transaction) -> Dml:
        return Dml(self.database.cluster, self.database.catalog, transaction, self.database.now())

    def _commit(self, transaction: Transaction) -> None:
        try:
            if transaction.commit():
                self.progress.transactions += 1
        except SqlError:
            self.progress.refused += 1


class Mixed(Workload):
    """Several databases and tables of every kind and type, DDL, region changes, locks held for a while."""

    def __init__(self, database: Database, seed: int, options: Options) -> None:
        super().__init__(database, seed, options)
        self.actors: list[TableActor] = []
        self._ddl: Iterator[None] | None = None
        self._held: tuple[Pending, int] | None = None
        self._made = 0

    @property
    def ddl_runs(self) -> bool:
        """Whether a DDL is between two of its steps."""
        return self._ddl is not None

    def prepare(self) -> None:
        """Create the tables and some rows in each."""
        session = self.database.session()
        for schema, statements in MIXED_TABLES.items():
            session.execute(f"create database if not exists {schema}; use {schema}")
            for name, sql in statements.items():
                if self.options.tables and f"{schema}.{name}" not in self.options.tables:
                    continue
                session.execute(sql)
                self.actors.append(TableActor(self.database, TableName(schema, name), self.random))
        for actor in self.actors:
            self._write([actor], 20)

    def act(self) -> None:
        """Do one thing: mostly a transaction, else a step of the running DDL or something else that is due."""
        options, count = self.options, self.progress.transactions
        if self._ddl is not None and self.random.random() < 0.4:
            self._advance()
            return
        if self._held is not None:
            self._hold_on()
        if due(options.ddl_every, count, self.random) and self._ddl is None and self._held is None:
            self._start_ddl()
        elif due(options.region_every, count, self.random):
            self._change_regions()
        elif due(options.lock_every, count, self.random) and self._ddl is None and self._held is None:
            self._hold()
        else:
            size = self.random.choice((1, 1, 1, 2, 3)) * self.options.rows if self.random.random() > 0.01 else 50 * self.options.rows
            self._write(self.random.sample(self.actors, min(len(self.actors), self.random.randint(1, 3))), self.random.randint(1, size))

    def settle(self) -> None:
        while self._ddl is not None:
            self._advance()
        if self._held is not None:
            self._release(commit=True)

    def recover(self) -> None:
        self._ddl = None
        if self._held is not None:
            self._release(commit=False)

    def _write(self, actors: list[TableActor], rows: int) -> None:
        transaction = self._transaction()
        dml = self._dml(transaction)
        for actor in actors:
            self.progress.rows += actor.write(dml, max(1, rows // len(actors)))
        self._commit(transaction)

    # DDL

    def _advance(self) -> None:
        assert self._ddl is not None
        try:
            next(self._ddl)
        except StopIteration:
            self._ddl = None
            self.progress.ddls += 1
        except SqlError as error:
            self._ddl = None
            self._refuse(error)

    def _refuse(self, error: SqlError) -> None:
        self.progress.refused += 1
        _log.info("a DDL of the workload was refused: %s", error)

    def _start_ddl(self) -> None:
        actor = self.random.choice(self.actors)
        table = actor.table
        if table is None:
            return
        sql = self.random.choice(DDLS)(actor, table, self.random)
        if sql:
            try:
                self._ddl = self.database.session(actor.name.schema).steps(sql)
                self._advance()
            except SqlError as error:
                self._refuse(error)

    # regions and locks

    def _change_regions(self) -> None:
        cluster, random = self.database.cluster, self.random
        self.progress.region_changes += 1
        kind = random.randrange(3)
        if kind == 0 or len(cluster.regions) < 3:
            key = random.choice(self.actors).some_key()
            if key is not None:
                cluster.split([key])
        elif kind == 1:
            regions = list(cluster.regions)
            position = random.randrange(len(regions) - 1)
            pair = [regions[position].id, regions[position + 1].id]
            random.shuffle(pair)
            cluster.merge(pair[0], pair[1])
        else:
            region = random.choice(list(cluster.regions))
            cluster.transfer_leader(region.id, random.choice(region.peers).store_id)

    def _hold(self) -> None:
        """Prewrite a change of one row and leave it locked for some actions: the resolved ts stands still meanwhile."""
        actor = self.random.choice(self.actors)
        key = actor.some_key()
        newest = self.database.cluster.mvcc.tablet(key).newest(key) if key is not None else None
        if key is not None and newest is not None and newest[2] is not None and key not in self.database.cluster.mvcc.locks:
            self._held = (self.database.cluster.prewrite([(key, newest[2])]), self.random.randint(1, 10))

    def _hold_on(self) -> None:
        assert self._held is not None
        pending, left = self._held
        if left > 0:
            self._held = (pending, left - 1)
            return
        self._release(commit=self.random.random() >= 0.3)

    def _release(self, *, commit: bool) -> None:
        """End the transaction that holds a lock, unless a client that met the lock has ended it, as a capture does after a while."""
        assert self._held is not None
        (pending, _), self._held = self._held, None
        locks = self.database.cluster.mvcc.locks
        if any(key not in locks or locks[key].start_ts != pending.start_ts for key in pending.keys):
            self.progress.refused += 1
        elif commit:
            self.database.cluster.commit(pending)
        else:
            self.database.cluster.rollback(pending)


def due(every: int, count: int, random: Random) -> bool:
    """Return whether something is due that happens once in `every` transactions."""
    return every > 0 and count > 0 and random.random() < 1 / every


class Bank(Workload):
    """Transfers between accounts in two databases: the sum of all balances never changes. No DDL."""

    ACCOUNTS = 100
    START = 1000

    def prepare(self) -> None:
        """Two tables of accounts."""
        session = self.database.session()
        for schema, sql in BANK_TABLES.items():
            rows = ",".join(f"({n},{self.START},'account {n}')" for n in range(self.ACCOUNTS))
            session.execute(f"create database if not exists {schema}; use {schema}; {sql}; insert into accounts values {rows}")

    def act(self) -> None:
        """One transfer, across the databases."""
        first, second = self.random.sample(sorted(BANK_TABLES), 2)
        amount = self.random.randint(1, 50)
        session = self.database.session()
        session.execute("begin")
        for schema, change in ((first, -amount), (second, amount)):
            session.execute(f"update {schema}.accounts set balance = balance + {change} where id = {self.random.randrange(self.ACCOUNTS)}")
            self.progress.rows += 1
        session.execute("commit")
        self.progress.transactions += 1
        if due(self.options.region_every, self.progress.transactions, self.random):
            table = self.database.catalog.table(TableName(first, "accounts"), "")
            self.database.cluster.split([keys.record_key(table.id, self.random.randrange(1, self.ACCOUNTS))])
            self.progress.region_changes += 1


class Append(Workload):
    """Inserts into one table at any speed, `rows` a transaction. The rows are made as bytes."""

    SQL = """create table events (id bigint primary key auto_increment, device varchar(16) not null, kind int not null, reading double,
        at datetime(3))"""

    BATCH = 10_000

    def __init__(self, database: Database, seed: int, options: Options) -> None:
        super().__init__(database, seed, options)
        self._seed, self._next = seed, 1
        self._maker: RowMaker | None = None
        self._table: Table | None = None
        self._made: list[Mutation] = []
        self._taken = 0

    def prepare(self) -> None:
        """Create the table."""
        session = self.database.session()
        session.execute(f"create database if not exists load_test; use load_test; {self.SQL}")
        self._table = session.table(TableName("", "events"))
        self._maker = RowMaker(self._table, self._seed)

    def act(self) -> None:
        """One transaction."""
        count = self.options.rows
        if self._taken + count > len(self._made):
            self._make(max(count, self.BATCH // count * count))
        mutations = self._made[self._taken : self._taken + count]
        self._taken += count
        if self.database.binlogs is None:
            self.database.cluster.transact(mutations, CommitMode.ONE_PHASE if count <= ONE_PHASE_KEYS else CommitMode.TWO_PHASE)
        else:
            self._insert(mutations)
        self.progress.transactions += 1
        self.progress.rows += count

    def _insert(self, mutations: list[Mutation]) -> None:
        """Write rows as a transaction that is told by binlogs."""
        assert self._table is not None
        transaction = self.database.transaction()
        for key, value in mutations:
            assert value is not None
            transaction.put(key, value)
            transaction.inserted(self._table, key, self._table.codec.row(key, value))
        transaction.commit()

    def _make(self, count: int) -> None:
        assert self._maker is not None
        self._made, self._taken = self._maker.make(self._next, count).mutations(), 0
        self._next += count


class Idle(Workload):
    """Does nothing: only what is asked for by `ctl` happens."""

    def prepare(self) -> None:
        """Nothing."""

    def act(self) -> None:
        """Nothing."""
