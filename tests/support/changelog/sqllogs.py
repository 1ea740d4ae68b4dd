"""Change logs of what SQL statements do, by the playground.

sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY)")      before the log begins
at = sql.run("INSERT INTO t VALUES (1)")                 a ts past it
log = sql.write(folder)
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tests.support.capture.captures import stored_changes, told_changes
from tests.support.changelog.logs import DELETE, PUT, Change, build_log
from tidemill.playground.server import Playground
from tidemill.playground.sql.binlogs import Writer
from tidemill.playground.store.mvcc import Mvcc
from tidemill.playground.workload.mixed import Options
from tidemill.tidb import keys

SYSTEM_IDS = 1 << 47
"""From here on ids are those of TiDB's own tables, such as the DDL jobs'."""


class SqlLog:
    """A TiDB without a network, with a database `app`."""

    def __init__(self, *before: str, seed: int = 1) -> None:
        self._playground = Playground(seed)
        self.run("CREATE DATABASE app", "USE app", *before)
        self.start_ts = self._playground.cluster.oracle.next()

    @classmethod
    def of(cls, playground: Playground) -> Self:
        """The log of everything that a playground has done."""
        made = cls.__new__(cls)
        made._playground, made.start_ts = playground, playground.began_ts
        return made

    def run(self, *statements: str) -> int:
        """Run statements; a ts past them."""
        for sql in statements:
            self._playground.execute(sql)
        return self._playground.cluster.oracle.next()

    def work(self, workload: str, transactions: int, options: Options = Options()) -> None:  # noqa: B008 – frozen
        """Let a workload of the playground run."""
        made = self._playground.prepare(workload, options)
        while made.progress.transactions < transactions:
            made.act()

    @property
    def playground(self) -> Playground:
        """The cluster that ran the statements."""
        return self._playground

    @property
    def mvcc(self) -> Mvcc:
        """The store."""
        return self._playground.cluster.mvcc

    def write_binlogs(self, writer: Writer) -> None:
        """Let what is run from now on be told by binlogs too."""
        self._playground.database.write_binlogs(writer)

    def meta_at(self, ts: int) -> list[tuple[bytes, bytes]]:
        """The meta key-values."""
        return [(key, value) for key, value in self.mvcc.scan(b"m", b"n", ts) if isinstance(value, bytes)]

    def tables_at(self, ts: int) -> dict[tuple[str, str], Any]:
        """What the tables hold."""
        return self._playground.tables_at(ts)

    def write(
        self, folder: Path, *, partitions: int = 1, alter: Callable[[Change], Change] = lambda change: change, told: bool = False
    ) -> str:
        """Write the log of everything run until now. `alter` may change each row's change. `told`: without what DDLs did to rows."""
        cluster, start = self._playground.cluster, self.start_ts
        end = cluster.oracle.next()
        snapshot = dict(self.meta_at(start))
        rows = [
            alter(Change(c.table_id, PUT if c.value is not None else DELETE, c.start_ts, c.commit_ts, c.key, c.value, c.old_value))
            for c in (told_changes if told else stored_changes)(cluster, start, end)
            if c.table_id < SYSTEM_IDS and (c.value is not None or c.old_value is not None)
        ]
        log = build_log(
            folder, rows, start_ts=start, ends=[end], partitions=partitions, snapshot=snapshot, schema_changes=self._schema(start, end)
        )
        return str(log)

    def _schema(self, start: int, end: int) -> list[Change]:
        """The meta keys and the rows of the DDL job table."""
        found = []
        ranges = {0: (b"m", b"n"), keys.DDL_JOB_TABLE_ID: keys.record_range(keys.DDL_JOB_TABLE_ID)}
        for table_id, (low, high) in ranges.items():
            for key, versions in self._playground.cluster.mvcc.items(low, high):
                before: bytes | None = None
                for commit_ts, start_ts, value in sorted(versions):
                    if start < commit_ts <= end:
                        found.append(Change(table_id, PUT if value is not None else DELETE, start_ts, commit_ts, key, value, before))
                    before = value
        return found
