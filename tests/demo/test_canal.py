"""What Canal's Java client said is audited: order, whole transactions, and the tables that it makes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.consumer.upstreams import playground_with, truth
from tidemill.consumer.tables.sqlite import MEMORY, SqliteTables
from tidemill.demo.canal import EntryAudit, entry_of
from tidemill.demo.compare import compare

SQL = "create table d.t (id int primary key, v int)"


def told(entry: str, ts: int, **change: Any) -> dict[str, Any]:
    """As the program of the client writes it."""
    props = [["commit_ts", str(ts)], ["start_ts", str(ts - 1)]]
    return {"type": entry, "execute_time": 0, "schema": "d", "table": "t", "props": props} | change


def begin(ts: int) -> dict[str, Any]:
    return told("TRANSACTIONBEGIN", ts)


def end(ts: int) -> dict[str, Any]:
    return told("TRANSACTIONEND", ts)


def row(ts: int, key: int, value: int) -> dict[str, Any]:
    after = [[0, 4, "id", True, True, str(key), "int"], [1, 4, "v", False, True, str(value), "int"]]
    return told("ROWDATA", ts, kind=1, ddl=False, sql="", ddl_schema="", rows=[[[], after]])


def ddl(ts: int) -> dict[str, Any]:
    return told("ROWDATA", ts, kind=4, ddl=True, sql=SQL, ddl_schema="d", rows=[])


GOOD = [ddl(10), begin(11), row(11, 1, 1), row(11, 2, 2), end(11)]


def audited(entries: list[dict[str, Any]]) -> EntryAudit:
    audit = EntryAudit(SqliteTables(MEMORY))
    audit.take(map(entry_of, entries))
    audit.finish()
    return audit


def test_a_faultless_reading() -> None:
    audit = audited(GOOD)
    assert audit.problems == []
    assert (audit.entries, audit.rows, audit.ddls, audit.transactions) == (5, 2, 1, 1)
    playground = playground_with(f"create database d; {SQL}; insert into d.t values (1, 1), (2, 2)")
    assert list(compare(audit.tables, truth(playground.tables_at()))) == []  # type: ignore[arg-type]
    playground = playground_with(f"create database d; {SQL}; insert into d.t values (1, 1), (2, 3)")
    assert "delivered 2, upstream 3" in str(list(compare(audit.tables, truth(playground.tables_at()))))  # type: ignore[arg-type]


FAULTS = {
    "at 12 came after 13": [*GOOD, begin(13), end(12)],
    "begins inside of another": [*GOOD, begin(12), begin(12), end(12)],
    "has not begun": [*GOOD, end(12)],
    "outside of a transaction": [*GOOD, row(12, 3, 3)],
    "inside of a transaction": [GOOD[1], ddl(11), GOOD[4]],
    "has no end": [*GOOD, begin(12)],
}


@pytest.mark.parametrize("said", FAULTS)
def test_each_fault_is_found(said: str) -> None:
    (problem,) = audited(FAULTS[said]).problems
    assert said in problem
