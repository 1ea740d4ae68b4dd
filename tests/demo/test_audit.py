"""The audit finds what breaks a guarantee, and only that."""

from __future__ import annotations

import json

import pytest

from tests.support.delivery.runs import audited
from tidemill.demo.audit import Audit
from tidemill.demo.delivered import Delivered
from tidemill.errors import MalformedMessage
from tidemill.protocols.open.encode import framed, resolved_message


def column(value: object, *, handle: bool = False) -> dict[str, object]:
    return {"t": 3, "f": 11 if handle else 64, "v": value} | ({"h": True} if handle else {})


def row(ts: int, key: int, table: str = "t", *, partition: int = 0, value: int | None = None) -> Delivered:
    head = json.dumps({"ts": ts, "scm": "d", "tbl": table, "t": 1}).encode()
    body = json.dumps({"u": {"id": column(key, handle=True), "v": column(ts if value is None else value)}}).encode()
    return Delivered("topic", partition, *framed(head, body))


def ddl(ts: int, query: str = "CREATE", *, partition: int = 0) -> Delivered:
    head = json.dumps({"ts": ts, "scm": "d", "tbl": "t", "t": 2}).encode()
    return Delivered("topic", partition, *framed(head, json.dumps({"q": query, "t": 3}).encode()))


def resolved(ts: int, *, partition: int = 0) -> Delivered:
    return Delivered("topic", partition, *resolved_message(ts))


GOOD = [
    *(ddl(10, partition=p) for p in (0, 1)),
    *(resolved(10, partition=p) for p in (0, 1)),
    row(11, 1), row(12, 2, "u"), row(12, 1), row(11, 3, partition=1),
    *(resolved(12, partition=p) for p in (0, 1)),
]  # fmt: skip


def test_a_faultless_delivery() -> None:
    audit = audited(GOOD)
    assert audit.problems == []
    assert (len(audit.rows), len(audit.ddls), audit.resolved_events, audit.repeats) == (4, 1, 4, 0)


def test_repeats_are_counted_and_no_fault() -> None:
    audit = audited([*GOOD, *GOOD[:8], *GOOD[2:]])
    assert audit.problems == []
    assert audit.repeats > 8
    assert len(audit.rows) == 4


FAULTS = {
    "came after resolved 12": [*GOOD, row(12, 9)],
    "came after one at 20": [*GOOD, row(20, 1), row(19, 2)],
    "came after the DDL at 30": [*GOOD, *(ddl(30, "X", partition=p) for p in (0, 1)), row(30, 5)],
    "came after a row of d.t at 20": [*GOOD, row(20, 1), *(ddl(15, "X", partition=p) for p in (0, 1))],
    "(X) came after the one at 30": [*GOOD, *(ddl(ts, q, partition=p) for p in (0, 1) for ts, q in ((30, "Y"), (20, "X")))],
    "(X) came after resolved 12": [*GOOD, *(ddl(12, "X", partition=p) for p in (0, 1))],
    "was in partition 0 before": [*GOOD, row(20, 1, partition=1)],
    "not every DDL is in every partition": [*GOOD, ddl(30, "X")],
    "end at different resolved ts": [*GOOD, resolved(13)],
}


@pytest.mark.parametrize("said", FAULTS)
def test_each_broken_guarantee_is_found(said: str) -> None:
    problems = audited(FAULTS[said]).problems
    assert problems
    assert all(said in problem and problem.startswith("topic") for problem in problems), problems


def test_rows_may_move_between_partitions_where_nobody_promised_otherwise() -> None:
    audit = Audit(check_homes=False)
    audit.take([row(1, 1), row(2, 1, partition=1)])
    assert audit.problems == []


def test_an_event_that_was_lost_is_missing_from_the_rows() -> None:
    assert len(audited([m for m in GOOD if m is not GOOD[4]]).rows) == 3


def test_an_update_that_came_as_two_events_is_counted_once() -> None:
    """The row keeps its handle: a unique key that is not the handle was changed. A row that moved to another key is two changes."""

    def deleted(ts: int, key: int) -> Delivered:
        head = json.dumps({"ts": ts, "scm": "d", "tbl": "t", "t": 1}).encode()
        return Delivered("topic", 0, *framed(head, json.dumps({"d": {"id": column(key, handle=True)}}).encode()))

    audit = audited([row(11, 1), deleted(12, 1), row(12, 1), deleted(13, 1), row(13, 2), deleted(14, 2)])
    assert (len(audit.rows), audit.split_updates()) == (6, 1)


def test_what_is_no_message_is_named() -> None:
    with pytest.raises(MalformedMessage, match="topic topic, partition 0, offset 0: it is of no protocol"):
        audited([Delivered("topic", 0, b"\0\0\0", b"")])
