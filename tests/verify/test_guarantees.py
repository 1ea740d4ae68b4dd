"""A good topic passes; each way of breaking a guarantee is found and named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from tidemill.protocols.open.codes import ColumnFlag
from tidemill.protocols.open.events import Column, DdlMessage, Event, ResolvedMessage, RowEvent, RowKind
from tidemill.verify.guarantees import Checker, Guarantee

INSERT, UPDATE, DELETE = RowKind.INSERT, RowKind.UPDATE, RowKind.DELETE
Step = tuple[int, Event]
"""Partition and event."""


def row(ts: int, key: int, kind: RowKind = INSERT, table: str = "t", value: str = "", handle: bool = True) -> RowEvent:
    columns = (
        Column("id", 3, ColumnFlag(0), handle, key),
        Column("v", 15, ColumnFlag(0), False, value.encode()),
    )
    after = () if kind is DELETE else columns
    before = () if kind is INSERT else columns
    return RowEvent(ts, "d", table, key, None, kind, after, before, False, None)


def ddl(ts: int, table: str = "t") -> DdlMessage:
    return DdlMessage(ts, "d", table, f"ALTER TABLE {table}", 5)


def resolved(ts: int) -> ResolvedMessage:
    return ResolvedMessage(ts)


def checked(steps: Iterable[Step], *, partitions: int = 2, **options: bool) -> Checker:
    checker = Checker([("topic", p) for p in range(partitions)], **options)
    for offset, (partition, event) in enumerate(steps):
        checker.take("topic", partition, offset, [event])
    checker.finish()
    return checker


GOOD: Sequence[Step] = [
    (0, row(10, 1)),
    (1, row(11, 2)),
    (0, row(12, 1, UPDATE, value="x")),
    (0, row(12, 3)),
    (0, row(13, 3, DELETE)),
    (0, row(13, 3, INSERT, value="split")),
    (0, ddl(14)),
    (1, ddl(14)),
    (0, resolved(14)),
    (1, resolved(14)),
    (0, row(15, 1, DELETE)),
    (1, row(15, 9, table="other")),
    (0, resolved(20)),
    (1, resolved(20)),
]


def test_a_good_topic() -> None:
    checker = checked([*GOOD, *GOOD])
    assert checker.problems == []
    assert (checker.rows, checker.ddls, checker.resolved) == (8, 2, 8)
    assert checker.repeats == 10


def test_a_row_without_a_key_is_only_ordered() -> None:
    steps = [(0, row(1, 1, handle=False)), (1, row(2, 1, handle=False)), (0, row(2, 1, handle=False, value="b"))]
    assert checked(steps).problems == []


BROKEN: dict[str, tuple[Guarantee, list[Step]]] = {
    "rows in the wrong order": (Guarantee.COMMIT_ORDER, [(0, row(5, 1)), (0, row(4, 2))]),
    "DDLs in the wrong order": (Guarantee.COMMIT_ORDER, [(0, ddl(5)), (1, ddl(4)), (1, ddl(5)), (0, ddl(4))]),
    "a DDL in one partition": (Guarantee.EVERYWHERE, [(0, ddl(5))]),
    "a resolved ts in one partition": (Guarantee.EVERYWHERE, [(1, resolved(5))]),
    "a row in two partitions": (Guarantee.ONE_PARTITION, [(0, row(5, 1)), (1, row(6, 1, UPDATE))]),
    "a row at its resolved ts": (Guarantee.RESOLVED, [(0, resolved(5)), (1, resolved(5)), (0, row(5, 1))]),
    "a DDL below a resolved ts": (Guarantee.RESOLVED, [(0, resolved(5)), (1, resolved(5)), (0, ddl(4)), (1, ddl(4))]),
    "a row behind the DDL it comes before": (Guarantee.RESOLVED, [(0, ddl(5)), (1, ddl(5)), (0, row(5, 1))]),
    "a row before the DDL it comes behind": (Guarantee.RESOLVED, [(0, row(6, 1)), (0, ddl(5)), (1, ddl(5))]),
    "two updates of a row at once": (Guarantee.ONE_EVENT, [(0, row(5, 1, UPDATE, value="a")), (0, row(5, 1, UPDATE, value="b"))]),
    "an insert before its delete": (Guarantee.ONE_EVENT, [(0, row(5, 1)), (0, row(5, 1, DELETE))]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found(name: str) -> None:
    guarantee, steps = BROKEN[name]
    found = checked(steps)
    assert set(found.broken) == {guarantee}, found.problems
    assert "topic[" in str(found.problems[0])


def test_what_may_be_switched_off() -> None:
    steps = [(0, row(5, 1)), (1, row(6, 1, UPDATE))]
    assert checked(steps, homes=False).problems == []
    assert checked([(0, ddl(5))], ddls_everywhere=False).problems == []


def test_a_ddl_of_another_table_divides_nothing() -> None:
    assert checked([(0, row(6, 1)), (0, ddl(5, table="other")), (0, row(6, 2))], partitions=1).problems == []


def test_many_problems_are_counted_and_some_are_shown() -> None:
    found = checked([(0, row(1000 - i, i)) for i in range(500)], partitions=1)
    assert found.broken[Guarantee.COMMIT_ORDER] == 499
    assert len(found.problems) == 100
