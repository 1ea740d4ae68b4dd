"""TiCDC's scenarios of types, keys and transactions: SQL on a playground, delivered into a real MariaDB.

All share one log and one delivery; each has a database of its own. `test_ticdc_scenarios` says which of TiCDC's tests they stand for."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest

from tests.support.changelog.logs import Change
from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.database_runs import delivered, hurried, wrong
from tests.support.delivery.scenarios import SCENARIOS, statements
from tests.support.servers.mariadb import MariaDb
from tidemill.playground.sql.parse.ast import TableName
from tidemill.tidb.rows import RowReader, decode_row
from tidemill.tidb.rows.write import encode_row_v1

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sql() -> SqlLog:
    sql = SqlLog()
    for name, text in SCENARIOS.items():
        sql.run(f"create database {name}", f"use {name}", *statements(text))
    return sql


@pytest.fixture(scope="module")
def db(mariadb: MariaDb, sql: SqlLog, tmp_path_factory: pytest.TempPathFactory) -> MariaDb:
    """Everything is delivered, as if it could not have been written before."""
    mariadb.clear()
    with pytest.MonkeyPatch.context() as patch:
        hurried(patch)
        mariadb.run("CREATE DATABASE app")
        log = sql.write(tmp_path_factory.mktemp("log") / "log", alter=Formats(sql))
        delivered(log, f"{mariadb.uri}?max-txn-row=8")
    return mariadb


class Formats:
    """Every second change of row_format.t has its row in format 1, and those between have their old row so: as if somebody set
    tidb_row_format_version again and again."""

    def __init__(self, sql: SqlLog) -> None:
        self._table = sql.playground.database.catalog.table(TableName("row_format", "t"), "test").model
        self.changed = 0

    def __call__(self, change: Change) -> Change:
        if change.table_id != self._table.id:
            return change
        self.changed += 1
        if self.changed % 2:
            return change._replace(value=self._older(change.key, change.value))
        return change._replace(old_value=self._older(change.key, change.old_value))

    def _older(self, key: bytes, stored: bytes | None) -> bytes | None:
        if stored is None:
            return None
        row = encode_row_v1(RowReader(self._table, UTC).read(key, stored), self._table)
        assert (decode_row(stored).format, decode_row(row).format) == (2, 1)
        return row


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", SCENARIOS)
def test_tables_are_those_of_the_upstream(db: MariaDb, sql: SqlLog, name: str) -> None:
    assert [*wrong(db, sql, name)] == []


TEXTS: list[tuple[str, list[tuple[Any, ...]]]] = [
    ("CAST(t AS CHAR)", [("-838:59:59.000",), ("-00:00:00.500",), ("838:59:59.000",), ("-01:02:03.004",)]),
    ("CAST(d AS CHAR)", [("0000-00-00",), ("9999-12-31",), ("2024-02-29",), (None,)]),
    ("CAST(dt AS CHAR)", [("0000-00-00 00:00:00.000000",), ("9999-12-31 23:59:59.999999",), ("2024-02-29 12:00:00.000001",), (None,)]),
    (
        "CAST(CONVERT_TZ(ts, @@time_zone, '+00:00') AS CHAR)",
        [("1970-01-01 00:00:01.00",), ("2038-01-19 03:14:07.00",), ("2024-03-31 02:30:00.12",), (None,)],
    ),
    ("y+0, b+0", [(0, 2**64 - 1), (2155, 0), (1901, 5), (None, None)]),
    ("CONCAT(e, '/', e+0), CONCAT(s, '/', s+0)", [("a/1", "x,z/5"), ("it's/2", "/0"), ("/3", "y/2"), ("a/1", None)]),
    (
        "CAST(n AS CHAR)",
        [("12345678901234567890.000000000000000000000000000001",), ("0." + 30 * "0",), (35 * "9" + "." + 30 * "9",), (None,)],
    ),
    (
        "HEX(bi), HEX(vb), HEX(bl)",
        [("61620000", "00FF27", "5C"), ("00000000", "", ""), ("00000000", "0D0A", "69742773"), (None, None, None)],
    ),
    ("REPLACE(REPLACE(CAST(j AS CHAR), ', ', ','), ': ', ':')", [('{"a":[1,"x"],"ü":null}',), ("[]",), ('"text \\" quoted"',), (None,)]),
    ("u, m, CAST(z AS CHAR)", [(2**64 - 1, -8388608, "0000000007"), (0, 8388607, "0000000000"), (1, 0, "0000000042"), (None, None, None)]),
    (
        "f+0e0 > 3.4e38, g = -1.7976931348623157e308, g = 0.1, g = 1e100",
        [(0, 1, 0, 0), (1, 0, 1, 0), (0, 0, 0, 1), (None, None, None, None)],
    ),
    ("v", [("[1,2.5,-3]",), ("[0,0,0]",), (None,), (None,)]),
]


@pytest.mark.parametrize(("asked", "expected"), TEXTS, ids=[asked for asked, _ in TEXTS])
def test_values_are_exact(db: MariaDb, asked: str, expected: list[tuple[Any, ...]]) -> None:
    """As the database itself prints them."""
    assert db.rows(f"SELECT {asked} FROM types.t ORDER BY id") == expected


def test_strings_lie_in_their_character_set(db: MariaDb) -> None:
    assert db.rows("SELECT HEX(a), HEX(b) FROM charset_gbk.t WHERE id = 1") == [("D4D9BCFB", "D6D0CEC4")]
    assert db.rows("SELECT HEX(a) FROM charset_gbk.l ORDER BY id") == [("E974E920FF",), ("6E61EF7665",)]
