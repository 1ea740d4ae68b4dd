"""DDLs with concurrent writers, as recorded: each logical row counts once, read with the columns its writer had."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.schema import schemas as s
from tests.support.schema.timelines import Timeline, plain_table, timelines
from tidemill.tidb.rows.raw import decode_row
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.tracking.history import SchemaHistory

ABC = [(1, "a"), (2, "b"), (3, "c")]
AB = ABC[:2]


def timeline(number: int) -> Timeline:
    return timelines()[number]


def only_event(history: SchemaHistory) -> DdlEvent:
    (event,) = history.ddl_events(history.start_ts, history.resolved_ts)
    return event


def assert_each_once(line: Timeline, history: SchemaHistory, count: int) -> None:
    """Every logical row was inserted once: its handle is kept once."""
    handles = Counter(row.handle for row, _ in line.kept(history))
    assert set(handles.values()) == {1}
    assert len(handles) == count


def names(version: object) -> list[str]:
    return [column.name for column in version.info.output_columns]  # type: ignore[attr-defined]


def test_there_are_sixteen() -> None:
    assert len(timelines()) == 16


def test_add_column() -> None:
    line = timeline(0)
    history = line.history(plain_table(110, ABC))
    event = only_event(history)
    assert event.ts == event.done_ts == line.done.commit_ts
    assert names(event.before) == ["a", "b", "c"]
    assert names(event.after) == ["a", "b", "c", "d"]
    for row, version in line.kept(history):
        assert names(version) == (["a", "b", "c"] if row.commit_ts <= event.ts else ["a", "b", "c", "d"])
    assert len(line.kept(history)) == len(line.rows)


def test_modify_column_takes_the_new_id_when_it_is_done() -> None:
    line = timeline(1)
    history = line.history(plain_table(110, [*ABC, (4, "d")]))
    event = only_event(history)
    assert event.ts == event.done_ts == line.done.commit_ts
    for row, version in line.kept(history):
        stored = decode_row(row.value).columns
        ids = [column.id for column in version.info.output_columns][1:]
        assert ids == ([2, 3, 4] if row.commit_ts <= event.ts else [2, 5, 4])
        assert all(i in stored for i in ids)


def test_drop_column_leaves_the_view_at_its_first_step() -> None:
    line = timeline(2)
    history = line.history(plain_table(110, [(1, "a"), (2, "b"), (5, "c"), (4, "d")]))
    event = only_event(history)
    assert event.ts == line.step("running", "write-only").commit_ts
    assert event.done_ts == line.done.commit_ts
    assert names(event.after) == ["a", "b", "c"]
    assert all(4 in decode_row(row.value).columns for row in line.rows if row.commit_ts <= event.ts)
    assert len(line.kept(history)) == len(line.rows)


@pytest.mark.parametrize(("number", "added", "dropped"), [(3, 6, 5), (11, 4, 3)])
def test_multi_schema_change_keeps_what_users_wrote(number: int, added: int, dropped: int) -> None:
    """ADD COLUMN e, DROP COLUMN c are public four steps before the job is done: no explicit value of e is lost."""
    line = timeline(number)
    history = line.history(plain_table(110, [(1, "a"), (2, "b"), (dropped, "c")]))
    event = only_event(history)
    assert event.ts < event.done_ts == line.done.commit_ts
    kept = line.kept(history)
    explicit = [row for row, version in kept if version.from_ts < row.commit_ts <= event.done_ts and version.from_ts == event.ts]
    assert explicit
    for row, version in kept:
        ids = [column.id for column in version.info.output_columns]
        assert ids == ([1, 2, dropped] if row.commit_ts <= event.ts else [1, 2, added])
        if row in explicit:
            assert added in decode_row(row.value).columns
    assert len(kept) == len(line.rows)


def test_add_column_and_index() -> None:
    line = timeline(12)
    history = line.history(plain_table(110, [(1, "a"), (2, "b"), (4, "e")]))
    event = only_event(history)
    assert event.ts < event.done_ts
    after = [row for row in line.rows if event.ts < row.commit_ts <= event.done_ts]
    assert len(after) == 4
    assert all(5 in decode_row(row.value).columns for row in after)
    assert [index.name for index in event.after.info.public_indices] == ["ib"]  # type: ignore[union-attr]


def test_rename_column() -> None:
    line = timeline(13)
    index = [s.index(1, "ib", [1])]
    history = line.history(plain_table(110, [(1, "a"), (2, "b"), (4, "e"), (5, "f")], index_info=index))
    event = only_event(history)
    assert event.ts == event.done_ts
    assert names(event.after) == ["a", "bb", "e", "f"]


def test_reorganize_partition_switches_once() -> None:
    line = timeline(4)
    history = line.history(plain_table(116, AB, partition=s.partition([117, 118])))
    event = only_event(history)
    assert event.ts == line.step("running", "delete-reorg").commit_ts < event.done_ts
    assert_each_once(line, history, 79)
    (change,) = history.next_table_changes(history.start_ts, history.resolved_ts)
    assert (change.ts, change.added, change.removed) == (event.ts, (120, 121), (117, 118))
    before = history.snapshot(event.ts - 1)
    assert {120, 121} <= before.retired
    assert {117, 118} <= history.snapshot(event.ts).retired


def test_truncate_partition_loses_no_row_of_the_new_one() -> None:
    line = timeline(5)
    history = line.history(plain_table(116, AB, partition=s.partition([120, 121])))
    event = only_event(history)
    assert event.ts == line.step("running", "delete-only").commit_ts < event.done_ts
    assert_each_once(line, history, 63)
    early = [row for row, _ in line.kept(history) if row.physical == 123 and row.commit_ts <= event.done_ts]
    assert len(early) == 6


def test_drop_partition() -> None:
    line = timeline(6)
    history = line.history(plain_table(116, AB, partition=s.partition([120, 123])))
    event = only_event(history)
    assert event.ts == line.step("running", "delete-only").commit_ts < event.done_ts
    assert_each_once(line, history, 26)
    assert history.next_table_changes(history.start_ts, history.resolved_ts)[0].removed == (123,)


def test_partition_by() -> None:
    """The timeline has rows of the new ids only, and the meta change of the end only: the others are as the facts tell."""
    line = timeline(7)
    old, new = s.partition([120], adding=[126, 127], dropping=[120], new_table_id=128), [126, 127]
    line.put(line.step("running", "delete-only"), plain_table(116, AB, partition=old))
    switched = s.partition(new, adding=new, dropping=[120], new_table_id=128)
    line.put(line.step("running", "delete-reorg"), plain_table(116, AB, partition=switched))
    line.drop(line.done, 116)
    history = line.history(plain_table(116, AB, partition=s.partition([120])))
    event = only_event(history)
    assert event.ts == line.step("running", "delete-reorg").commit_ts < event.done_ts
    assert_each_once(line, history, len({row.handle for row in line.rows if row.commit_ts > event.ts}))
    first, second = history.next_table_changes(history.start_ts, history.resolved_ts)
    assert (first.added, first.removed) == ((126, 127), (120,))
    assert (second.added, second.removed) == ((), ())  # only the logical id changes
    assert [version.table_id for version in (*second.ended, *second.begun)] == [116, 128]


def test_remove_partitioning() -> None:
    line = timeline(8)
    switched = s.partition([130], kind=0, adding=[130], dropping=[126, 127], new_table_id=130)
    line.put(line.step("running", "delete-reorg"), plain_table(128, AB, partition=switched))
    line.drop(line.done, 128)
    history = line.history(plain_table(128, AB, partition=s.partition([126, 127])))
    event = only_event(history)
    assert event.ts == line.step("running", "delete-reorg").commit_ts < event.done_ts
    assert_each_once(line, history, len({row.handle for row in line.rows if row.commit_ts > event.ts}))
    assert event.after is not None
    assert event.after.info.partition is None
    assert event.after.physical_ids == (130,)


def test_truncate_table() -> None:
    line = timeline(9)
    line.drop(line.done, 132)
    history = line.history(plain_table(132, AB))
    event = only_event(history)
    assert event.ts == event.done_ts
    assert (event.before.table_id, event.after.table_id, event.table_id) == (132, 134, 134)  # type: ignore[union-attr]
    assert_each_once(line, history, 23)
    assert not [row for row, version in line.kept(history) if not row.put]


def test_exchange_partition() -> None:
    """Rows of id 115 are those of the plain table before, and of partition p0 after."""
    line = timeline(14)
    line.drop(line.done, 115)
    line.put(line.done, plain_table(118, AB) | {"name": {"O": "ex", "L": "ex"}})
    exchange = {"raw_args": {"partition_id": 118, "pt_schema_id": 100, "pt_table_id": 117, "partition_name": "p0"}}
    plain = plain_table(115, AB) | {"name": {"O": "ex", "L": "ex"}}
    history = line.history(plain_table(117, AB, partition=s.partition([118, 119])), plain, job=exchange, table_id=115)
    event = only_event(history)
    assert event.ts == event.done_ts
    assert (event.table, event.pre_table) == ("t", "ex")
    assert event.query == "ALTER TABLE `d`.`t` EXCHANGE PARTITION `p0` WITH TABLE `d`.`ex`"
    kept = line.kept(history)
    assert len(kept) == len(line.rows)
    assert {(version.table, row.commit_ts <= event.ts) for row, version in kept} == {("ex", True), ("t", False)}
    (change,) = history.next_table_changes(history.start_ts, history.resolved_ts)
    assert (change.added, change.removed) == ((), ())


def test_add_partition() -> None:
    line = timeline(15)
    history = line.history(plain_table(117, AB, partition=s.partition([115, 119])))
    event = only_event(history)
    assert event.ts == event.done_ts == line.done.commit_ts
    assert_each_once(line, history, 42)
    assert history.next_table_changes(history.start_ts, history.resolved_ts)[0].added == (122,)


def test_rename_table() -> None:
    """The name moves one step before the job is done; the timeline has no rows."""
    line = timeline(10)
    step = line.step("running", "public")
    line.put(step, plain_table(134, AB) | {"name": {"O": "tr2", "L": "tr2"}})
    history = line.history(plain_table(134, AB) | {"name": {"O": "tr", "L": "tr"}})
    event = only_event(history)
    assert (event.ts, event.done_ts) == (step.commit_ts, line.done.commit_ts)
    assert (event.pre_table, event.table, event.query) == ("tr", "tr2", "RENAME TABLE `tr` TO `tr2`")
