"""The settings of a session downstream. Pure.

Rows are written with values as they are upstream: zero dates, invalid dates and 0 in AUTO_INCREMENT columns stay, what does not fit is an
error. Foreign keys are not checked: rows come by table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

KEEPING = "ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO"


def sql_mode(modes: str) -> str:
    """Return the value of `sql_mode` as SQL. MariaDB, alone, has to be told to round fractions of a second as TiDB and MySQL do."""
    return f"CONCAT('{modes}' /*M!100400 , ',TIME_ROUND_FRACTIONAL' */)"


SQL_MODE, DDL_SQL_MODE = sql_mode(f"STRICT_TRANS_TABLES,{KEEPING}"), sql_mode(KEEPING)
"""Of rows, and of DDLs, which run without the strict mode: what upstream's session took is taken here."""
STRICT, LENIENT = (f"SET SESSION sql_mode = {mode}".encode() for mode in (SQL_MODE, DDL_SQL_MODE))
IDLE_S = 600
"""The server ends a session that was silent for so long, so that one that was cut off does not keep its locks."""

WRITE_SOURCE = 1
"""Marks what a session writes into TiDB as written by a change data capture, so that a changefeed with bdr-mode does not send it back."""

UNKNOWN_VARIABLE = 1193
"""What a server answers to a setting that it does not have."""


@dataclass(frozen=True, slots=True)
class Server:
    """What a server is, by its version."""

    version: str

    @property
    def is_tidb(self) -> bool:
        return "tidb" in self.version.lower()

    @property
    def is_mariadb(self) -> bool:
        return "mariadb" in self.version.lower()

    @property
    def is_mysql(self) -> bool:
        return not self.is_tidb and not self.is_mariadb


def settings(server: Server, zone: str, *, optimistic: bool) -> Iterator[tuple[str, bool]]:
    """Yield the statements that begin a session, and whether each has to succeed."""
    yield f"SET SESSION sql_mode = {SQL_MODE}", True
    yield f"SET SESSION time_zone = '{zone}'", True
    yield "SET SESSION foreign_key_checks = 0", True
    yield "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", True
    yield f"SET SESSION wait_timeout = {IDLE_S}", True
    if server.is_tidb:
        yield f"SET SESSION tidb_txn_mode = '{'optimistic' if optimistic else 'pessimistic'}'", True
        yield f"SET SESSION tidb_cdc_write_source = {WRITE_SOURCE}", False
        yield "SET SESSION allow_auto_random_explicit_insert = 1", False
        yield "SET SESSION tidb_placement_mode = 'ignore'", False
        yield "SET SESSION tidb_enable_external_ts_read = OFF", False
        yield "SET SESSION tidb_skip_utf8_check = 1", False
        yield "SET SESSION tidb_constraint_check_in_place = 0", False
    if server.is_mariadb:
        yield "SET SESSION in_predicate_conversion_threshold = 0", False
        yield "SET SESSION check_constraint_checks = 0", False
    if server.is_mysql:  # since 8.4 a foreign key has to refer to a unique key, unless this is off
        yield "SET SESSION restrict_fk_on_non_standard_key = OFF", False
