"""Change logs that begin with the tables that there were, and have one of them again in the middle."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tests.support.changelog.sqllogs import SqlLog
from tidemill.changelog import initial_load
from tidemill.changelog.initial_load import Plan, PlannedTable
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import open_storage
from tidemill.events import RAW_CHANGE, Op
from tidemill.tidb.keys import record_range
from tidemill.tidb.schema.tracking.history import SchemaHistory

BEFORE = (
    "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20) DEFAULT 'x', d DECIMAL(8,2) NOT NULL DEFAULT 1.5, KEY by_v (v))",
    "CREATE TABLE p (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE)",  # noqa: E501
    "CREATE TABLE empty (a VARCHAR(10), b INT, PRIMARY KEY (a, b))",
    "CREATE TABLE keyless (a INT)",
    "CREATE DATABASE other",
    "CREATE TABLE other.u (id INT PRIMARY KEY, v VARCHAR(10))",
    "INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2), (3, NULL, 3)",
    "INSERT INTO p VALUES (1, 1), (11, 11)",
    "INSERT INTO other.u VALUES (7, 'seven')",
    "INSERT INTO keyless VALUES (1)",
)
AFTER = (
    "UPDATE t SET v = 'uno' WHERE id = 1",
    "DELETE FROM p WHERE id = 11",
    "ALTER TABLE empty ADD COLUMN c INT DEFAULT 9",
    "INSERT INTO empty VALUES ('a', 1, 2)",
    "ALTER TABLE p ADD COLUMN w INT NOT NULL DEFAULT 5",
    "DROP TABLE other.u",
    "CREATE TABLE other.late (id INT PRIMARY KEY)",
    "INSERT INTO other.late VALUES (1)",
)


class Loaded:
    """A log that begins with tables, and one table of it again in the middle."""

    def __init__(self, folder: Path) -> None:
        self.sql = SqlLog(*BEFORE)
        self.start = self.sql.start_ts
        self.sql.run(*AFTER[:4])
        self.again = self.sql.run()
        self.sql.run(*AFTER[4:])
        self.log = self.sql.write(folder / "log", partitions=2)
        self.end = LogReader(self.log).resolved_ts()
        self.load(self.start, None)
        self.load(self.again, "t")

    def load(self, ts: int, only: str | None, parts: int | None = None) -> None:
        """The tables as of `ts`; of their parts only the first where `parts` says so."""
        storage, mvcc = open_storage(self.log), self.sql.mvcc
        pairs = [(k, v) for k, v in mvcc.scan(b"m", b"n", ts) if isinstance(v, bytes)]
        versions = [v for v in SchemaHistory.bootstrap(ts, pairs).snapshot(ts).tables.values() if v.info.has_rows and v.schema != "mysql"]
        chosen = [v for v in versions if only in (None, v.table)]
        plan = Plan(ts, tuple(PlannedTable(v.table_id, v.table, tuple(record_range(p) for p in v.physical_ids)) for v in chosen))
        initial_load.write_plan(storage, plan)
        of_part = dict(zip(plan.parts(), (p for v in chosen for p in v.physical_ids), strict=True))
        for part in plan.parts()[:parts]:
            rows = [(k, v) for k, v in mvcc.scan(part.start, part.end, ts) if isinstance(v, bytes)]
            records = [
                {"table_id": of_part[part], "op": Op.PUT, "start_ts": ts, "commit_ts": ts, "key": k, "value": v, "old_value": None}
                for k, v in rows
            ]
            initial_load.write_part(storage, part, [pa.RecordBatch.from_pylist(records, schema=RAW_CHANGE)])
