"""Jobs in the lists and in the history of TiDB up to 6.1, and in the history table beside the job table."""

from __future__ import annotations

import pytest

from tests.support.schema import schema_streams as streams
from tests.support.schema import schemas as s
from tests.support.schema.histories import DB, DONE, T1, T2, begun, comment, events, named, pairs, with_history_table
from tidemill.tidb import keys
from tidemill.tidb.schema.codes import Action, JobState
from tidemill.tidb.schema.tracking.history import SchemaChange, SchemaHistory, job_table_id


def list_item(start: int, commit: int, index: int, job: s.Json) -> SchemaChange:
    key = bytes(keys.MetaKey(keys.MetaKind.LIST_ITEM, keys.DDL_JOB_LIST, index=index))
    return SchemaChange(0, s.PUT, start, commit, key, s.text(job))


def history_item(start: int, commit: int, job: s.Json) -> SchemaChange:
    key = keys.meta_hash_field(keys.DDL_JOB_HISTORY, job["id"].to_bytes(8, "big"))
    return SchemaChange(0, s.PUT, start, commit, key, s.text(job))


def test_jobs_in_lists() -> None:
    history = SchemaHistory.bootstrap(100, pairs(comment("old"), jobs=False))
    assert job_table_id(pairs(jobs=False)) is None
    query = "alter table t comment = 'new'"
    changes = [
        list_item(105, 105, 0, named(1, Action.MODIFY_TABLE_COMMENT, JobState.QUEUEING, query)),
        s.put_table(110, 110, DB, comment("new")),
        list_item(110, 110, 0, named(1, Action.MODIFY_TABLE_COMMENT, DONE, query)),
        history_item(112, 112, named(1, Action.MODIFY_TABLE_COMMENT, JobState.SYNCED, query, schema_version=6)),
    ]
    history.advance(changes, 120)
    assert [(event.ts, event.done_ts) for event in events(history)] == [(110, 110)]


def test_jobs_in_the_history_alone() -> None:
    history = SchemaHistory.bootstrap(100, pairs(comment("old"), jobs=False))
    synced = named(1, Action.MODIFY_TABLE_COMMENT, JobState.SYNCED, schema_version=6, table_info=comment("new"))
    before = named(2, Action.MODIFY_TABLE_COMMENT, JobState.SYNCED, schema_version=5, table_info=comment("x"))
    history.advance([history_item(105, 105, before), history_item(110, 110, synced)], 120)
    assert [event.job_id for event in events(history)] == [1]
    assert history.snapshot(120).tables[T1].info.comment == "new"


def test_an_exchange_is_not_taken_for_a_new_job_when_it_goes_into_the_history() -> None:
    """The resolved ts lies between the two commits; the row in the history has no arguments."""
    plain, parted = s.table(T1, "t"), s.table(T2, "p", partition=s.partition([20, 21]))
    history = with_history_table(plain, parted)
    args = {"pt_schema_id": DB, "pt_table_id": T2, "partition_id": 20, "partition_name": "p20"}
    after = s.table(T2, "p", partition=s.partition([T1, 21]))
    done = named(1, Action.EXCHANGE_PARTITION, DONE, "alter table p exchange partition p20 with table t", raw_args=args, table_info=after)
    changes = [s.put_table(110, 110, DB, after), s.drop_table(110, 110, DB, T1), s.put_table(110, 110, DB, s.table(20, "t"))]
    history.advance([*changes, s.put_job(110, 110, done)], 111)
    history.forget(111)
    history.advance([s.drop_job(115, 116, 1), streams.history_row(115, 116, done)], 120)
    assert history.ddl_events(111, 120) == []
    assert history.barriers(111, 120) == []


def test_a_truncate_is_not_repeated_when_it_goes_into_the_history() -> None:
    history = with_history_table(s.table(T1, "t"))
    done = named(1, Action.TRUNCATE_TABLE, DONE, "truncate table t", table_info=s.table(T2, "t"))
    history.advance([s.drop_table(110, 110, DB, T1), s.put_table(110, 110, DB, s.table(T2, "t")), s.put_job(110, 110, done)], 111)
    history.forget(111)
    history.advance([s.drop_job(115, 116, 1), streams.history_row(115, 116, done)], 120)
    assert history.ddl_events(111, 120) == []


def test_a_finished_job_whose_row_is_put_once_more_is_not_repeated() -> None:
    history = begun(comment("old"))
    done = named(1, Action.MODIFY_TABLE_COMMENT, DONE, "alter table t comment = 'new'", table_info=comment("new"))
    history.advance([s.put_table(110, 110, DB, comment("new")), s.put_job(110, 110, done)], 111)
    history.forget(111)
    history.advance([s.put_job(112, 113, done)], 114)
    assert history.ddl_events(111, 114) == []


@pytest.mark.parametrize("meta", [True, False])
def test_a_fast_create_table_is_in_the_history_alone(meta: bool) -> None:
    """TiDB 8.0 to 8.2 write such a job into the history only, together with the table; also while another job takes the next version."""
    history = with_history_table()
    job = named(1, Action.CREATE_TABLE, DONE, "create table t (a int primary key, b int)", table_info=s.table(T1, "t"), schema_version=5)
    changes = [s.put_table(105, 110, DB, s.table(T1, "t"))] if meta else []
    history.advance([*changes, streams.history_row(105, 110, job)], 120)
    (event,) = events(history)
    assert (event.ts, event.done_ts, event.table_id, event.table) == (110, 110, T1, "t")


def test_the_history_row_of_a_create_table_repeats_nothing() -> None:
    """Also where the history of schemas begins between the job's end and this row."""
    job = named(1, Action.CREATE_TABLE, DONE, "create table t (a int primary key, b int)", table_info=s.table(T1, "t"))
    history = with_history_table(s.table(T1, "t"))
    history.advance([s.drop_job(105, 110, 1), streams.history_row(105, 110, job)], 120)
    assert events(history) == []


def test_a_system_table_that_only_its_job_tells_is_left_out() -> None:
    history = begun()
    created = named(1, Action.CREATE_TABLE, DONE, schema_id=1, schema_name="mysql", table_id=30, table_info=s.table(30, "x"))
    history.advance([s.put_job(110, 110, created)], 120)
    assert history.snapshot(120).tables == {}
    assert events(history) == []


def test_the_history_is_not_read_where_there_is_a_job_table() -> None:
    history = begun(comment("old"))
    synced = named(1, Action.MODIFY_TABLE_COMMENT, JobState.SYNCED, schema_version=6, table_info=comment("new"))
    history.advance([history_item(110, 110, synced)], 120)
    assert events(history) == []
