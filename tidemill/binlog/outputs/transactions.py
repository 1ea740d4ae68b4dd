"""A transaction with its rows, and the versions of the tables that they are of."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.binlog.ddls import Ddl
from tidemill.binlog.rows import RowChange
from tidemill.tidb.schema.tracking.versions import TableVersion


@dataclass(frozen=True, slots=True)
class TableChanges:
    """The rows of one table, in the order of the statements."""

    version: TableVersion
    rows: tuple[RowChange, ...]


@dataclass(frozen=True, slots=True)
class Transaction:
    """The rows of one transaction."""

    start_ts: int
    commit_ts: int
    tables: tuple[TableChanges, ...]


@dataclass(frozen=True, slots=True)
class DdlBinlog:
    """A DDL at its place in the stream."""

    commit_ts: int
    ddl: Ddl


Entry = Transaction | DdlBinlog
