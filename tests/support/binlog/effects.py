"""What recorded binlogs make of a MariaDB: the statements that a real Drainer sent, run again, and the rows of all tables afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import re
from functools import cache

import pymysql

from tests.support.binlog.drained import Line, drained, recorded
from tests.support.servers.mariadb import MariaDb
from tidemill.binlog.outputs.transactions import DdlBinlog, Entry, Transaction

OTHERWISE = {
    "t_ex": "the real Drainer writes a row elsewhere after EXCHANGE PARTITION",
    "t_Case": "a DROP TABLE names it in other letters, which MariaDB tells apart: the real Drainer leaves it",
    "t_cmt": "a DROP TABLE of two tables, of which one is not there, was undone in the recording",
}
"""Tables that recorded binlogs make otherwise than the recorded statements."""

Rows = dict[tuple[str, str], list[tuple[bytes | None, ...]]]

OWN = ("mysql", "information_schema", "performance_schema", "sys", "tidb_binlog", "retl")


def blocks(statements: tuple[bytes, ...]) -> list[list[bytes]]:
    """Statements by transaction, without those that only ask, and without transactions that were undone."""
    found: list[list[bytes]] = []
    block: list[bytes] = []
    for statement in statements:
        if re.match(rb"(?i)select", statement):
            continue
        block.append(statement)
        if statement in (b"COMMIT", b"ROLLBACK"):
            if statement == b"COMMIT":
                found.append(block)
            block = []
    return found


def replay(db: MariaDb, cases: list[Line], entries: dict[int, Entry]) -> set[int]:
    """Run what the real Drainer sent for the cases, and the DDLs that no case has, in the order of their commit ts.

    Returns the commit ts of what MariaDB refuses: some of these DDLs are not as TiDB prints them, and so are not there for some cases.
    """
    own = {binlog.commit_ts for case in cases for binlog in case.binlogs}
    units = [({one.commit_ts for one in case.binlogs}, blocks(case.statements or ())) for case in cases]
    for ts, entry in entries.items():
        if ts not in own and isinstance(entry, DdlBinlog):
            use = [] if entry.ddl.names_database else [f"USE `{entry.ddl.schema}`".encode()]
            units.append(({ts}, [[*use, entry.ddl.query.encode()]]))
    refused: set[int] = set()
    with contextlib.closing(db.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = '', time_zone = '+00:00', foreign_key_checks = 0")
        for stamps, transactions in sorted(units, key=lambda unit: max(unit[0])):
            if not transactions and any(isinstance(entries.get(ts), Transaction) for ts in stamps):
                refused |= stamps  # as it was by the recorded one
            try:
                for statement in (statement for transaction in transactions for statement in transaction):
                    cursor.execute(statement)
            except pymysql.err.MySQLError:
                connection.rollback()
                refused |= stamps
    return refused


@cache
def entries() -> tuple[list[Line], dict[int, Entry]]:
    """The recorded cases, and what a Drainer makes of them."""
    cases = [case for case in recorded() if case.statements is not None]
    return cases, asyncio.run(drained(cases, fillers_too=True))


def upstream(db: MariaDb) -> tuple[Rows, set[int]]:
    """The rows that the real Drainer wrote, and the commit ts of what of the recording MariaDB takes. The server is empty afterwards."""
    db.clear()
    return _upstream(db)


@cache
def _upstream(db: MariaDb) -> tuple[Rows, set[int]]:
    cases, found = entries()
    refused = replay(db, cases, found)
    rows = rows_of(db)
    db.clear()
    return rows, found.keys() - refused


def differing(want: Rows, got: Rows) -> set[tuple[str, str]]:
    """The tables that are not as they should be."""
    return {name for name in want.keys() | got.keys() if want.get(name) != got.get(name) and name[1] not in OTHERWISE}


def rows_of(db: MariaDb) -> Rows:
    """The rows of all tables, in no order."""
    found: Rows = {}
    with contextlib.closing(db.connect(conv={}, use_unicode=False)) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION time_zone = '+00:00'")
        cursor.execute("SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'")
        names = [(schema.decode(), table.decode()) for schema, table in cursor.fetchall()]
        for schema, table in names:
            if schema not in OWN:
                cursor.execute(f"SELECT * FROM `{schema}`.`{table.replace('`', '``')}`")
                found[schema, table] = sorted(cursor.fetchall(), key=repr)
    return found
