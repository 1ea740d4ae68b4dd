"""A history that is told its changes in any order and in any chunks, begins anywhere, and forgets."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.schema import schemas as s
from tests.support.schema.histories import DB, DONE, RUNNING, T1, T2, begun, events, named, pairs
from tidemill.errors import SchemaError
from tidemill.events import RAW_CHANGE
from tidemill.tidb.schema.codes import Action, JobState
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.history import SchemaChange, SchemaHistory


def stream() -> list[SchemaChange]:
    """Some DDLs on two tables, steps of one between those of the other."""
    dropping = [s.column(1, "a", 0, flag=4099), s.column(2, "b", 1, state=2)]
    query = "alter table t drop column b"
    return [
        s.put_job(101, 102, named(1, Action.DROP_COLUMN, JobState.QUEUEING, query)),
        s.put_job(103, 104, named(1, Action.DROP_COLUMN, RUNNING, query)),
        s.put_table(103, 104, DB, s.table(T1, "t", dropping, pk_is_handle=True)),
        s.put_job(105, 106, named(2, Action.REORGANIZE_PARTITION, RUNNING, "alter table p", table_id=T2)),
        s.put_table(105, 106, DB, s.table(T2, "p", partition=s.partition([20, 21], adding=[22], dropping=[20, 21]))),
        s.put_job(107, 108, named(1, Action.DROP_COLUMN, DONE, query)),
        s.put_table(107, 108, DB, s.table(T1, "t", dropping[:1], pk_is_handle=True)),
        s.put_job(107, 110, named(2, Action.REORGANIZE_PARTITION, RUNNING, "alter table p", table_id=T2)),
        s.put_table(107, 110, DB, s.table(T2, "p", partition=s.partition([22], adding=[22], dropping=[20, 21]))),
        s.put_job(111, 112, named(2, Action.REORGANIZE_PARTITION, DONE, "alter table p", table_id=T2)),
        s.drop_job(113, 114, 1),
        s.put_database(115, 116, s.database(3, "e")),
        s.put_job(115, 116, named(3, Action.CREATE_SCHEMA, DONE, "create database e", schema_id=3, schema_name="e")),
        s.drop_table(117, 118, DB, T1),
        s.put_table(117, 118, 3, s.table(T1, "t2", dropping[:1], pk_is_handle=True)),
        s.put_job(117, 118, named(4, Action.RENAME_TABLE, RUNNING, "rename table t to e.t2", schema_id=3, schema_name="e")),
        s.put_job(119, 120, named(4, Action.RENAME_TABLE, DONE, "rename table t to e.t2", schema_id=3, schema_name="e")),
        s.drop_job(121, 122, 2),
    ]


BASE = (s.table(T1, "t"), s.table(T2, "p", partition=s.partition([20, 21])))


def told(history: SchemaHistory, ts: int = 100) -> tuple[object, ...]:
    barriers = history.barriers(ts, 130)
    tables = [(history.snapshot(at).tables, history.snapshot(at).databases) for at in [ts, *barriers]]
    return history.ddl_events(ts, 130), barriers, history.next_table_changes(ts, 130), tables


def advanced(changes: Sequence[SchemaChange], *ends: int) -> SchemaHistory:
    history = begun(*BASE)
    for end in ends:
        history.advance(changes, end)
    return history


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(order=st.permutations(range(18)), ends=st.lists(st.integers(100, 130), max_size=5), early=st.booleans())
def test_any_chunks_in_any_order_give_the_same(order: list[int], ends: list[int], early: bool) -> None:
    """Each advance gets the changes of its interval, or with `early` all that are left, which is more than it may use."""
    whole = advanced(stream(), 130)
    history = begun(*BASE)
    changes = [stream()[i] for i in order]
    start = 100
    for number, end in enumerate([*sorted(ends), 130]):
        sent = changes if early and number == 0 else [c for c in changes if start < c.commit_ts <= end] if not early else []
        history.advance(sent, end)
        start = max(start, end)
    assert told(history) == told(whole)


def test_known_changes_and_older_ends_are_skipped() -> None:
    history = advanced(stream(), 110, 110, 105, 130)
    assert told(history) == told(advanced(stream(), 130))
    assert history.resolved_ts == 130


def test_changes_as_arrow() -> None:
    history = begun(*BASE)
    columns = list(zip(*((*change, None) for change in stream()), strict=True))
    table = pa.table([pa.array(column, field.type) for column, field in zip(columns, RAW_CHANGE, strict=True)], schema=RAW_CHANGE)
    history.advance(table, 130)
    assert told(history) == told(advanced(stream(), 130))


def test_forgetting_moves_the_start() -> None:
    whole, history = advanced(stream(), 130), advanced(stream(), 130)
    history.snapshot(104)
    history.forget(110)
    history.forget(105)
    assert history.start_ts == 110
    assert told(history, 110) == told(whole, 110)
    assert history.ddl_events(100, 110) == []
    with pytest.raises(SchemaError):
        history.snapshot(109)
    history.advance([s.drop_table(140, 140, DB, T2)], 150)
    assert history.snapshot(150).tables.keys() == {T1}
    assert history.snapshot(139).tables[T2].to_ts == 140


@pytest.mark.parametrize("at", [104, 106, 110, 118])
def test_bootstrap_between_the_steps(at: int) -> None:
    """The later events of a start in the middle are those of a start before; no DDL comes twice or not at all."""
    state = dict(pairs(*BASE))
    for change in stream():
        if not change.table_id and change.commit_ts <= at:
            state.pop(change.key, None)
            if change.value is not None:
                state[change.key] = change.value
    middle = SchemaHistory.bootstrap(at, state.items())
    middle.advance(stream(), 130)
    whole = advanced(stream(), 130)
    assert [(e.ts, e.done_ts, e.query) for e in middle.ddl_events(at, 130)] == [
        (e.ts, e.done_ts, e.query) for e in whole.ddl_events(at, 130)
    ]
    assert middle.barriers(at, 130) == whole.barriers(at, 130)


@pytest.mark.parametrize(("changed_at", "told"), [(50, 1), (95, 0)])
def test_a_column_change_that_changes_nothing_is_told_when_the_history_begins_inside_its_job(changed_at: int, told: int) -> None:
    """Nothing in the log shows its effect: the time of the table's last change tells whether the job had done its work before."""
    history = begun(s.table(T1, "t", update_timestamp=changed_at))
    done = named(1, Action.MODIFY_COLUMN, DONE, "alter table t modify column b int", start_ts=90)
    running = named(1, Action.MODIFY_COLUMN, RUNNING, "alter table t modify column b int", start_ts=90)
    history.advance([s.put_job(104, 105, running)], 106)
    after = s.table(T1, "t", update_timestamp=109)
    history.advance([s.put_table(109, 110, DB, after), s.put_job(109, 110, done)], 120)
    assert [event.ts for event in events(history)] == [110] * told


def test_many_tables() -> None:
    """A cluster of some size: a snapshot does not cost what the whole history does."""
    history = begun(*(s.table(1000 + i, f"t{i}") for i in range(2000)))
    changes = [s.put_table(200 + i, 200 + i, DB, s.table(1000 + i, f"t{i}", comment="x")) for i in range(300)]
    history.advance(changes, 600)
    for i in range(0, 300, 7):
        tables = history.snapshot(200 + i).tables
        assert (tables[1000 + i].info.comment, tables[1001 + i].info.comment) == ("x", "")
    assert isinstance(history.snapshot(200).tables[1000].info, TableInfo)
