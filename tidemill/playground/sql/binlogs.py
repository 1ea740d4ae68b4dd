"""What a TiDB server with `enable-binlog` writes beside its transactions: a Prewrite before, a Commit or a Rollback after. No IO.

A Prewrite is in a Pump before the commit_ts is taken. So a Pump that has given out all binlogs up to a ts gets none below it later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tidemill.binlog.messages import Binlog, BinlogType, MutationType, Prewritten, TableMutation
from tidemill.errors import SqlError
from tidemill.playground.store.cluster import Cluster, CommitMode, Mutation


class Writer(Protocol):
    """Writes binlogs into Pumps."""

    def prewrite(self, binlog: Binlog) -> None:
        """Write a Prewrite and return when a Pump has it. Raises SqlError if none takes it."""

    def end(self, binlog: Binlog) -> None:
        """Write a Commit or a Rollback, soon: nobody waits for it."""


@dataclass(frozen=True, slots=True)
class Binlogs:
    """How a server writes binlogs. `schema_version`: what it is now."""

    writer: Writer
    schema_version: Callable[[], int]


class NoPump:
    """The writer of a server that has found no Pump yet: it takes nothing."""

    def prewrite(self, binlog: Binlog) -> None:
        """Raises SqlError."""
        raise SqlError("no Pump is online yet", hint="A cluster with binlogs writes nothing without one: tidemill pump --pd-urls …")

    def end(self, binlog: Binlog) -> None:
        """Nothing has begun."""


@dataclass(frozen=True, slots=True)
class RowBinlog:
    """A change of a row, in the order of the statements."""

    table_id: int
    kind: MutationType
    data: bytes


def prewritten(schema_version: int, rows: Sequence[RowBinlog]) -> bytes:
    """Return the value of a Prewrite: the rows by table, each table where its first row came."""
    tables: dict[int, list[RowBinlog]] = {}
    for row in rows:
        tables.setdefault(row.table_id, []).append(row)
    return Prewritten(schema_version, tuple(_mutation(table_id, of_table) for table_id, of_table in tables.items())).encode()


def _mutation(table_id: int, rows: Sequence[RowBinlog]) -> TableMutation:
    inserted, updated, deleted = (
        tuple(row.data for row in rows if row.kind is kind) for kind in (MutationType.INSERT, MutationType.UPDATE, MutationType.DELETE_ROW)
    )
    return TableMutation(table_id, inserted, updated, deleted, tuple(row.kind for row in rows))


def transact(
    cluster: Cluster,
    writer: Writer,
    binlog: Binlog,
    mutations: Sequence[Mutation],
    *,
    read_ts: int = 0,
    source: int = 0,
) -> int:
    """Write a transaction and its binlogs, of which `binlog` is the Prewrite, and return its commit_ts. It commits in two phases, as with
    TiDB.

    Raises SqlError if no Pump takes it, KeyLocked and WriteConflict; then nothing is written but a Rollback.
    """
    writer.prewrite(binlog)
    try:
        commit_ts = cluster.transact(mutations, CommitMode.TWO_PHASE, start_ts=binlog.start_ts, read_ts=read_ts, source=source)
    except BaseException:
        writer.end(Binlog(BinlogType.ROLLBACK, binlog.start_ts, prewrite_key=binlog.prewrite_key))
        raise
    writer.end(replace(binlog, tp=BinlogType.COMMIT, commit_ts=commit_ts, prewrite_value=b""))
    return commit_ts
