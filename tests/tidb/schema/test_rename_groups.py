"""RENAME TABLE of several tables: an event for each, and all of them in each as a group, which one statement can carry out."""

from __future__ import annotations

from dataclasses import replace

from tests.support.schema.tables import ddl_event, table_version
from tidemill.tidb.ddltext.synthesized import rename_tables
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.events import DdlEvent, grouped
from tidemill.tidb.schema.tracking.renames import Move, in_one_statement


def rename(old: str, new: str, seq: int, ts: int = 5, job_id: int = 1) -> DdlEvent:
    event = ddl_event(table_version("s", new), ts, type_code=Action.RENAME_TABLE)
    return replace(event, pre_schema="s", pre_table=old, seq=seq, job_id=job_id)


def test_the_renames_of_one_statement_are_a_group_which_its_first_event_leads() -> None:
    alter = ddl_event(table_version("s", "a"), 5, type_code=Action.ADD_COLUMN)
    events = grouped(
        [rename("a", "b", 0), rename("b", "a", 1), replace(alter, job_id=2), rename("c", "d", 0, job_id=3), rename("d", "e", 0, 7)]
    )
    assert [[(one.pre_table, one.table) for one in event.group] for event in events] == [[("a", "b"), ("b", "a")]] * 2 + [[]] * 3
    assert [event.leads_group for event in events] == [True, False, False, False, False]
    assert all(not member.group for event in events for member in event.group)


def test_a_group_of_which_the_rules_leave_one_is_none() -> None:
    assert [event.group for event in grouped([rename("a", "b", 1)])] == [()]


def statement(*moves: tuple[str, str]) -> str:
    listed = [Move(number, ("s", old), ("s", new)) for number, (old, new) in enumerate(moves)]
    return rename_tables(in_one_statement(listed, lambda move: (move.old[0], f"tmp{move.table_id}"))).replace("`", "").replace("s.", "")


def test_each_new_name_is_free_and_a_ring_is_opened_by_a_spare_name() -> None:
    assert statement(("a", "b"), ("c", "d")) == "RENAME TABLE a TO b, c TO d"
    assert statement(("a", "b"), ("b", "c")) == "RENAME TABLE b TO c, a TO b"
    assert statement(("a", "b"), ("b", "a")) == "RENAME TABLE a TO tmp0, b TO a, tmp0 TO b"
    assert statement(("a", "b"), ("b", "c"), ("c", "a"), ("x", "y"), ("y", "x")) == (
        "RENAME TABLE a TO tmp0, c TO a, b TO c, tmp0 TO b, x TO tmp3, y TO x, tmp3 TO y"
    )
    assert statement(("a", "A")) == "RENAME TABLE a TO A"
