"""Up to which commit ts the rows of tables without a key were begun to be applied, kept in the database that they go into.

Rows of such a table that are applied twice are there twice: neither REPLACE nor a key tells. So they are refused, unless the table is
empty. What is noted is noted before the rows are written: after a crash the last of them may be there, or not.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.binlog.drainer.database.database import Database
from tidemill.errors import SchemaError
from tidemill.protocols.sql.literals import quoted
from tidemill.tidb.names import quote_name
from tidemill.tso import describe

SCHEMA = "tidb_binlog"
TABLE = f"{SCHEMA}.tidemill_reparo_v1"
_CREATE = (
    f"CREATE DATABASE IF NOT EXISTS {SCHEMA}",
    f"""CREATE TABLE IF NOT EXISTS {TABLE} (
  table_schema VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  table_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  commit_ts BIGINT UNSIGNED NOT NULL,
  PRIMARY KEY (table_schema, table_name))""",
)

Table = tuple[str, str]


class KeylessNotes:
    """Of one run. All methods raise SinkError, SinkUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._before: dict[Table, int] = {}  # what an earlier run has noted of the tables that came
        self._made = False

    def check(self, table: Table, commit_ts: int) -> None:
        """Raises SchemaError for rows of a table that may have been applied before."""
        if table not in self._before:
            self._before[table] = self._noted(table)
        before = self._before[table]
        if commit_ts > before:
            return
        schema, plain = table
        where = f"table_schema = {quoted(schema.encode()).decode()} AND table_name = {quoted(plain.encode()).decode()}"
        raise SchemaError(
            f"{self._database.where}: rows of {schema}.{plain} up to {describe(before)} were applied before, and it has no key: those at "
            f"{describe(commit_ts)} would be there twice",
            hint=f"Go on with -start-tso {before + 1}, or leave the table out (replicate-ignore-table), or empty it and apply its rows "
            f"from the first on. If an earlier run was cut off, the last rows of that ts may be missing. If the rows are others: "
            f"DELETE FROM {TABLE} WHERE {where}.",
        )

    def note(self, begun: Mapping[Table, int]) -> None:
        """Note, before rows are written, up to which commit ts those of each table are."""
        if begun:
            self._database.retrying(f"the table {TABLE}", lambda: self._write(begun))

    def _write(self, begun: Mapping[Table, int]) -> None:
        connection = self._database.open()
        for statement in () if self._made else _CREATE:
            connection.run(statement)
        self._made = True
        for table, ts in begun.items():
            connection.run(f"REPLACE INTO {TABLE} VALUES (%s, %s, %s)", *table, ts)
        connection.commit()

    def _noted(self, table: Table) -> int:
        found: list[int] = []

        def read() -> None:
            connection = self._database.open()
            asked = "SELECT COUNT(*) FROM information_schema.tables WHERE CONCAT(table_schema, '.', table_name) = %s"
            if connection.rows(asked, TABLE)[0][0]:
                rows = connection.rows(f"SELECT commit_ts FROM {TABLE} WHERE table_schema = %s AND table_name = %s", *table)
                if rows and connection.rows(f"SELECT 1 FROM {quote_name(table[0])}.{quote_name(table[1])} LIMIT 1"):
                    found.append(int(rows[0][0]))
            connection.rollback()

        self._database.retrying(f"the table {TABLE}", read)
        return found[-1] if found else 0
