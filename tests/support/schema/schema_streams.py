"""Whole schema streams for tests: what a capture reads of meta keys, of the job table and of the history of jobs.

Recorded streams lack what their recorder left out. It is added here as TiDB writes it: a finished job's row is deleted by the transaction
that puts the job into `tidb_ddl_history`, with its arguments gone and its state `synced`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from random import Random

from tests.support.schema import schemas as s
from tests.support.schema.recorded_schemas import feed
from tests.support.schema.timelines import plain_table, timelines
from tidemill.errors import SqlError
from tidemill.playground.server import Playground
from tidemill.playground.workload.mixed import Mixed, Options
from tidemill.tidb import keys
from tidemill.tidb.rows.write import pack_row
from tidemill.tidb.schema.codes import JobState
from tidemill.tidb.schema.tracking.history import SchemaChange, SchemaHistory, meta_filter

HISTORY_META = 2
"""The column of mysql.tidb_ddl_history with the job."""

Pairs = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Stream:
    """The changes past `ts`, by commit ts, and the meta pairs at it."""

    ts: int
    pairs: Pairs
    transactions: tuple[tuple[int, tuple[SchemaChange, ...]], ...]

    @classmethod
    def of(cls, ts: int, pairs: Iterable[tuple[bytes, bytes]], changes: Iterable[SchemaChange]) -> Stream:
        """As the log keeps it."""
        kept = sorted((c for c in changes if c.table_id or meta_filter(c.key)), key=lambda c: (c.commit_ts, c.start_ts, c.table_id, c.key))
        parts = groupby(kept, key=lambda c: c.commit_ts)
        return cls(ts, [pair for pair in pairs if meta_filter(pair[0])], tuple((at, tuple(part)) for at, part in parts if at > ts))

    @property
    def end(self) -> int:
        """The last commit ts."""
        return self.transactions[-1][0]

    def history(self) -> SchemaHistory:
        """A history at the stream's beginning."""
        return SchemaHistory.bootstrap(self.ts, self.pairs)

    def states(self) -> Iterable[tuple[int, Pairs]]:
        """The meta pairs as of the beginning and after each commit ts: what a bootstrap there reads."""
        state = dict(self.pairs)
        yield self.ts, sorted(state.items())
        for at, changes in self.transactions:
            for change in changes:
                if not change.table_id and change.value is not None:
                    state[change.key] = change.value
                elif not change.table_id:
                    state.pop(change.key, None)
            yield at, sorted(state.items())


def history_row(start: int, commit: int, job: s.Json) -> SchemaChange:
    """A finished job in mysql.tidb_ddl_history: its arguments are gone, and what was done is synced."""
    state = JobState.SYNCED if job["state"] == JobState.DONE else job["state"]
    text = s.text({**job, "state": int(state), "raw_args": None})
    key = keys.record_key(keys.DDL_HISTORY_TABLE_ID, job["id"])
    return SchemaChange(keys.DDL_HISTORY_TABLE_ID, s.PUT, start, commit, key, pack_row({HISTORY_META: text}))


def history_table_pair() -> tuple[bytes, bytes]:
    """The description of mysql.tidb_ddl_history."""
    columns = [s.column(1, "job_id", 0, flag=4099), s.column(HISTORY_META, "job_meta", 1, tp=251)]
    return keys.table_key(1, keys.DDL_HISTORY_TABLE_ID), s.text(s.table(keys.DDL_HISTORY_TABLE_ID, "tidb_ddl_history", columns))


def with_history_rows(changes: Sequence[SchemaChange]) -> list[SchemaChange]:
    """The changes, and for each deleted job row the row of the history that TiDB puts in the same transaction."""
    jobs: dict[bytes, s.Json] = {}
    made = list(changes)
    for change in sorted(changes, key=lambda c: (c.commit_ts, c.start_ts)):
        if change.table_id != s.JOB_TABLE_ID:
            continue
        if change.value is not None:
            text = change.value[change.value.index(b'{"id":') :].decode("utf-8", "replace")
            jobs[change.key] = json.JSONDecoder().raw_decode(text)[0]
        elif change.key in jobs:
            made.append(history_row(change.start_ts, change.commit_ts, jobs.pop(change.key)))
    return made


def golden(number: int = 0) -> Stream:
    """The session of golden/ticdc, from one of its two meta snapshots on."""
    ts, pairs = s.golden_snapshot(number)
    return Stream.of(ts, pairs, with_history_rows(s.golden_changes()))


def golden_jobs() -> Stream:
    """The same without its meta keys, up to the FLASHBACK DATABASE, which cannot be followed without them."""
    changes = [c for c in s.golden_changes() if c.table_id]
    recover = next(c.commit_ts for c in changes if c.value and b"flashback database" in c.value and b'"state":4' in c.value)
    ts, pairs = s.golden_snapshot(0)
    return Stream.of(ts, pairs, with_history_rows([c for c in changes if c.commit_ts < recover]))


def recorded() -> Stream:
    """Some 45 DDLs of a real TiKV, with the rows of the history that TiDB itself wrote."""
    changes = feed()
    return Stream.of(min(c.commit_ts for c in changes) - 1, [*s.job_table_pairs(), history_table_pair()], changes)


def recorded_jobs() -> Stream:
    """The jobs of 73 DDLs and their rows of the history, as TiDB wrote them, without meta keys."""
    changes = []
    for line in s.read_lines("tikv/ddl_jobs.jsonl.gz"):
        for version in line["versions"]:
            times = version["start_ts"], version["commit_ts"]
            if version["src"] != "tidb_ddl_job":
                changes.append(history_row(*times, version["job"]))
            elif version["op"] == "Del":
                changes.append(s.drop_job(*times, line["job_id"]))
            else:
                changes.append(s.put_job(*times, version["job"]))
    test = (keys.db_key(2), s.text(s.database(2, "test")))
    return Stream.of(min(c.commit_ts for c in changes) - 1, [*s.job_table_pairs(), history_table_pair(), test], changes)


def windows() -> dict[str, Stream]:
    """The DDLs of golden/tikv/ddl_windows that one description at their beginning is enough for."""
    tables = {
        "add column d": plain_table(110, [(1, "a"), (2, "b"), (3, "c")]),
        "modify column": plain_table(110, [(1, "a"), (2, "b"), (3, "c"), (4, "d")]),
        "reorganize": plain_table(116, [(1, "a"), (2, "b")], partition=s.partition([117, 118])),
        "truncate partition": plain_table(116, [(1, "a"), (2, "b")], partition=s.partition([120, 121])),
        "drop partition": plain_table(116, [(1, "a"), (2, "b")], partition=s.partition([120, 123])),
        "add partition": plain_table(117, [(1, "a"), (2, "b")], partition=s.partition([115, 119])),
    }
    found = {}
    for line in timelines():
        for words, table in tables.items():
            if words in line.sql:
                begun = line.history(table)
                database = (keys.db_key(100), s.text(s.database(100, "d")))
                pairs = [*s.job_table_pairs(), history_table_pair(), database, (keys.table_key(100, table["id"]), s.text(table))]
                found[words] = Stream.of(begun.start_ts, pairs, with_history_rows(line.changes(table["id"], {})))
    return found


def playground(seed: int, transactions: int = 150) -> Stream:
    """What a workload with many DDLs leaves, and statements that its menu lacks."""
    made = Playground(seed)
    start = made.cluster.oracle.next()
    workload = made.prepare("mixed", Options(ddl_every=3, lock_every=0, region_every=0, rows=1))
    assert isinstance(workload, Mixed)
    for sql in STATEMENTS:
        made.execute(sql)
        _act(workload, transactions // len(STATEMENTS))
    return _left_in(made, start)


def side_by_side(seed: int, ddls: int = 60) -> Stream:
    """DDLs of several tables whose steps run between each other."""
    made, random = Playground(seed), Random(seed)
    start = made.cluster.oracle.next()
    made.execute("create database d; use d")
    for table in range(5):
        made.execute(f"create table t{table} (a int primary key, b int, c varchar(9))")
    session = made.database.session("d")
    running: dict[int, Iterator[None]] = {}
    names = {table: f"t{table}" for table in range(5)}
    while ddls or running:
        table = random.choice([*range(5)] if ddls else [*running])
        if table not in running and ddls:
            ddls -= 1
            change = random.choice(CHANGES).format(n=ddls)
            if change.startswith("rename"):
                old, names[table] = names[table], f"t{table}_{ddls}"
                running[table] = session.steps(f"rename table {old} to {names[table]}")
            elif change.startswith("truncate"):
                running[table] = session.steps(f"truncate table {names[table]}")
            else:
                running[table] = session.steps(f"alter table {names[table]} {change}")
        elif table in running:
            try:
                next(running[table])
            except (StopIteration, SqlError):
                del running[table]
    return _left_in(made, start)


CHANGES = (
    "add column x{n} int default 3", "add column x{n} int, drop column c", "modify column c varchar({n}0)", "drop column b",
    "comment 'c{n}'",    "add index i{n} (a)", "rename", "truncate", "modify column b bigint", "add column b int",
    "add column c varchar(9)",
)  # fmt: skip


def _left_in(made: Playground, start: int) -> Stream:
    mvcc = made.cluster.mvcc
    pairs = [(k, v) for k, v in mvcc.scan(b"m", b"n", start) if isinstance(v, bytes)]
    tables = (keys.DDL_JOB_TABLE_ID, keys.DDL_HISTORY_TABLE_ID)
    ranges = [(0, (b"m", b"n")), *((table, keys.record_range(table)) for table in tables)]
    changes = [
        SchemaChange(table, s.PUT if value is not None else s.DELETE, start_ts, commit_ts, key, value)
        for table, (first, last) in ranges
        for key, versions in mvcc.items(first, last)
        for commit_ts, start_ts, value in versions
    ]
    return Stream.of(start, pairs, changes)


def _act(workload: Mixed, transactions: int) -> None:
    until = workload.progress.transactions + transactions
    while workload.progress.transactions < until:
        workload.act()
    workload.settle()


STATEMENTS = (
    "create database x; create table x.p (a int primary key, b int) partition by range (a) (partition p0 values less than (10),"
    " partition p1 values less than (100))",
    "create table x.plain (a int primary key, b int); alter table x.p exchange partition p0 with table x.plain",
    "create table x.a (a int primary key); create table x.b2 (a int primary key)",
    "rename table x.a to x.tmp, x.b2 to x.a, x.tmp to x.b",
    "create view x.v as select a from x.a; drop view x.v",
    "alter table x.p drop partition p0; drop table x.plain",
    "truncate table x.b; drop database x",
)
