"""Writers for workloads. Each one writes one table: seeded inserts, and updates, deletes and key changes of its rows."""

from __future__ import annotations

from random import Random

from tidemill.errors import SqlError
from tidemill.playground.sql.catalog import Table
from tidemill.playground.sql.parse.ast import TableName
from tidemill.playground.sql.rows.dml import Dml
from tidemill.playground.sql.rows.rowcodec import Row
from tidemill.playground.sql.session import Database
from tidemill.playground.workload import samples
from tidemill.tidb import keys
from tidemill.tidb.schema.codes import ColumnFlag, PartitionType


class TableActor:
    """Writes rows of one table and remembers which keys are there."""

    def __init__(self, database: Database, name: TableName, random: Random) -> None:
        self._database, self.name, self._random = database, name, random
        self._keys: list[bytes] = []
        self._physical: tuple[int, ...] = ()
        self.added = 0  # columns that DDLs added so far

    @property
    def table(self) -> Table | None:
        """The table; None once it is dropped."""
        return self._database.catalog.find(self.name, self.name.schema)

    def is_taken(self, name: str) -> bool:
        """Does another table of the same database have this name?"""
        return self._database.catalog.find(TableName("", name), self.name.schema) is not None

    def write(self, dml: Dml, rows: int) -> int:
        """Insert, update or delete some rows; returns how many were written. Statements that are refused are skipped."""
        table = self.table
        if table is None:
            return 0
        self._follow(table)
        written = 0
        for _ in range(rows):
            try:
                written += self._write_one(dml, table)
            except SqlError:
                continue
        return written

    def _write_one(self, dml: Dml, table: Table) -> int:
        chance = self._random.random()
        if not self._keys or chance < 0.5:
            codec = table.codec
            row = {c.id: samples.sample(c, self._random) for c in codec.given if c not in codec.automatic}
            _fit_partition(table, row, self._random)
            self._keys.append(dml.insert_plain(table, row))
            return 1
        position = self._random.randrange(len(self._keys))
        key = self._keys[position]
        if not dml.exists(key):
            self._forget(position)
            return 0
        if chance < 0.62:
            dml.delete_key(table, key)
            self._forget(position)
            return 1
        columns = table.codec.given
        moving = chance > 0.95
        chosen = [c for c in columns if (moving or not c.flag & ColumnFlag.PRIMARY_KEY) and self._random.random() < 0.4]
        changes = {c.id: samples.sample(c, self._random) for c in chosen if moving or not _partitions_by(table, c.name)}
        if moving:
            _fit_partition(table, changes, self._random)
        moved = dml.update_key(table, key, changes)
        self._keys[position] = moved
        return 1

    def _forget(self, position: int) -> None:
        self._keys[position] = self._keys[-1]
        self._keys.pop()

    def _follow(self, table: Table) -> None:
        """After a DDL that moved the rows, look for the keys again."""
        if table.model.physical_ids != self._physical:
            self._physical = table.model.physical_ids
            mvcc = self._database.cluster.mvcc
            stored = (item for physical in self._physical for item in mvcc.items(*keys.record_range(physical)))
            self._keys = [key for key, history in stored if history[-1][2] is not None]

    def some_key(self) -> bytes | None:
        """A key of the table."""
        return self._random.choice(self._keys) if self._keys else None


def _partitions_by(table: Table, name: str) -> bool:
    partition = table.model.partitioning
    return partition is not None and (f"`{name}`" in partition.expr or name in partition.columns)


def _fit_partition(table: Table, row: Row, random: Random) -> None:
    """Keep integer columns that partitions are cut by within their bounds."""
    partition = table.model.partitioning
    if partition is None or partition.type not in (PartitionType.RANGE, PartitionType.LIST):
        return
    for column in table.codec.public:
        if column.id in row and _partitions_by(table, column.name) and isinstance(row[column.id], (int, type(None))):
            row[column.id] = random.randrange(1000)
