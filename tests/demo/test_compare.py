"""The comparison of tables with the upstream names every row that differs, and nothing else."""

from __future__ import annotations

import pytest

from tests.support.consumer.streams import row
from tests.support.consumer.upstreams import playground_with, truth
from tidemill.consumer.order.progress import Progress
from tidemill.consumer.tables.sqlite import MEMORY, SqliteTables
from tidemill.demo.compare import compare
from tidemill.protocols.open.events import RowEvent


def tables_with(*rows: RowEvent) -> SqliteTables:
    tables = SqliteTables(MEMORY)
    for event in rows:
        tables.rows([event])
    tables.commit(Progress())
    return tables


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row(1, 1, None, 1)], "id='2' was not delivered"),
        ([row(1, i, None, i) for i in (1, 2, 3)], "id='3' was delivered but is not there"),
        ([row(1, 1, None, 1), row(1, 2, None, 9)], "column v: delivered 9, upstream 2"),
    ],
)
def test_rows_that_differ_are_named(rows: list[RowEvent], said: str) -> None:
    playground = playground_with("create database d; create table d.t (id int primary key, v int); insert into d.t values (1, 1), (2, 2)")
    found = [str(d) for d in compare(tables_with(*rows), truth(playground.tables_at()))]  # type: ignore[arg-type]
    assert any(said in text for text in found)
    assert all(text.startswith("d.t: ") for text in found)
    assert len(found) <= 2


def test_rows_of_a_table_that_is_not_there_are_named() -> None:
    [found] = compare(tables_with(row(1, 1, None, 1)), {})
    assert "not there" in str(found)


def test_applying_rows_again_changes_nothing() -> None:
    rows = [row(1, 1, None, 1), row(2, 1, 1, None), row(2, 2, None, 1), row(3, 2, 1, None)]
    playground = playground_with("create database d; create table d.t (id int primary key, v int)")
    assert list(compare(tables_with(*rows[:3], *rows[:3], *rows), truth(playground.tables_at()))) == []  # type: ignore[arg-type]
