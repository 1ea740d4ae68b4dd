"""The schema stream of a real TiDB session, against what TiCDC's own code made of it."""

from __future__ import annotations

import itertools
import json
from bisect import bisect_left, bisect_right
from typing import Any

import pytest

from tests.support.schema.schemas import golden_changes, golden_snapshot, read_lines
from tests.support.thorough import one_in
from tidemill.tidb import keys
from tidemill.tidb.schema.codes import Action, JobState
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.history import SchemaChange, SchemaHistory, job_table_id, meta_filter
from tidemill.tidb.schema.tracking.view import public_view

Json = dict[str, Any]


@pytest.fixture(scope="module")
def changes() -> list[SchemaChange]:
    return golden_changes()


@pytest.fixture(scope="module")
def end(changes: list[SchemaChange]) -> int:
    return max(change.commit_ts for change in changes)


@pytest.fixture(scope="module")
def history(changes: list[SchemaChange], end: int) -> SchemaHistory:
    made = SchemaHistory.bootstrap(*golden_snapshot(0))
    made.advance(changes, end)
    return made


@pytest.fixture(scope="module")
def jobs() -> list[Json]:
    return list(read_lines("ticdc/ddl.jsonl.gz"))


def expected_events(job: Json) -> list[Json] | None:
    """What TiCDC sends when every table is replicated; None where it fails."""
    result = job.get("result_force_replicate") or job["result"]
    return None if "error" in job["result"] else result.get("events") or []


def places(changes: list[SchemaChange]) -> dict[int, list[int]]:
    """For each job the commit ts of meta changes from its first row to its end: its event may stand at any of them."""
    first: dict[int, int] = {}
    done: dict[int, int] = {}
    for change in changes:
        if change.table_id and change.value is not None:
            text = change.value[change.value.index(b'{"id":') :].decode("utf-8", "replace")
            job = json.JSONDecoder().raw_decode(text)[0]
            first[job["id"]] = min(first.get(job["id"], change.commit_ts), change.commit_ts)
            if job["state"] == JobState.DONE:
                done[job["id"]] = change.commit_ts
    metas = sorted({change.commit_ts for change in changes if not change.table_id})
    return {job_id: [*metas[bisect_left(metas, first[job_id]) : bisect_right(metas, ts)], ts] for job_id, ts in done.items()}


def test_events_are_those_of_ticdc(history: SchemaHistory, jobs: list[Json], changes: list[SchemaChange], end: int) -> None:
    events = itertools.groupby(history.ddl_events(history.start_ts, end), key=lambda e: e.job_id)
    found = {job_id: list(group) for job_id, group in events}
    allowed = places(changes)
    for job in jobs:
        expected = expected_events(job)
        got = found.pop(job["job_id"], [])
        if expected is None:  # after FLASHBACK DATABASE, which TiCDC does not follow
            assert [event.query for event in got] == ["DROP DATABASE `fdb`"]
            continue
        if job["query"].startswith("create table pub.plist("):  # not replicated in either pass: no usable key
            assert [event.table for event in got] == ["plist"]
            continue
        assert len(got) == len(expected), job["query"]
        for event, want in zip(got, expected, strict=True):
            assert (event.schema, event.table, event.type) == (want["schema"], want["table"], want["type"])
            assert (event.pre_schema, event.pre_table) == (want.get("pre_schema", ""), want.get("pre_table", ""))
            assert event.query == want["sent_query"]
            assert event.reprinted
            assert event.done_ts == want["commit_ts"]
            assert event.ts in allowed[event.job_id]
            if event.type not in (Action.ALTER_PARTITIONING, Action.REMOVE_PARTITIONING):  # there the id changes at the end
                assert event.table_id == want["table_id"]
    assert not found
    assert history.unprintable == 0


def test_events_come_in_order_and_stand_at_barriers(history: SchemaHistory, end: int) -> None:
    events = history.ddl_events(history.start_ts, end)
    order = [(event.ts, event.schema_version, event.seq) for event in events]
    assert order == sorted(order)
    barriers = history.barriers(history.start_ts, end)
    assert barriers == sorted(set(barriers))
    assert {event.ts for event in events} <= set(barriers)
    assert {change.ts for change in history.next_table_changes(history.start_ts, end)} <= set(barriers)


def test_parts_of_the_history_join(history: SchemaHistory, end: int) -> None:
    middle = history.barriers(history.start_ts, end)[150]
    parts = history.ddl_events(history.start_ts, middle) + history.ddl_events(middle, end)
    assert parts == history.ddl_events(history.start_ts, end)
    assert history.barriers(history.start_ts, middle)[-1] == middle
    assert history.barriers(middle, end)[0] > middle


def test_tables_are_those_of_ticdc_at_each_version(history: SchemaHistory) -> None:
    checked = 0
    for line in read_lines("ticdc/tables.jsonl.gz"):
        info = TableInfo.from_json(line["tableinfo"])
        after = history.snapshot(line["version"])
        dropped = line["table_id"] not in after.tables
        version = (history.snapshot(line["version"] - 1) if dropped else after).tables[line["table_id"]]
        assert version.name == (line["schema"], line["table"])
        assert version.schema_id == line["schema_id"]
        assert public_view(version.schema, version.info) == public_view(line["schema"], info)
        checked += 1
    assert checked == 487


def test_a_snapshot_says_which_rows_belong_where(history: SchemaHistory, end: int) -> None:
    for switch in history.next_table_changes(history.start_ts, end):
        before, after = history.snapshot(switch.ts - 1), history.snapshot(switch.ts)
        assert set(switch.added) <= after.by_physical.keys()
        assert not set(switch.added) & before.by_physical.keys()
        assert set(switch.removed) <= before.by_physical.keys() & after.retired
        assert all(after.tables[version.table_id] is version for version in switch.begun)
        assert all(before.tables[version.table_id].to_ts == switch.ts for version in switch.ended)
        assert not after.retired & after.by_physical.keys()


def test_bootstrap_in_the_middle_gives_the_same(changes: list[SchemaChange], history: SchemaHistory, end: int) -> None:
    middle = SchemaHistory.bootstrap(*golden_snapshot(1))
    middle.advance(changes, end)
    assert_same_from(middle.start_ts, end, history, middle)


def assert_same_from(ts: int, end: int, one: SchemaHistory, two: SchemaHistory) -> None:
    """Two histories agree on what users see, and on events, past ts."""

    def told(history: SchemaHistory) -> list[tuple[Any, ...]]:
        events = history.ddl_events(ts, end)
        return [(e.ts, e.done_ts, e.job_id, e.seq, e.type, e.schema, e.table, e.pre_table, e.table_id, e.query) for e in events]

    assert told(one) == told(two)
    assert one.barriers(ts, end) == two.barriers(ts, end)
    barriers = one.barriers(ts, end)
    for at in [ts, *barriers[:3], *barriers[3::40], end]:
        assert seen(one, at) == seen(two, at)


def seen(history: SchemaHistory, ts: int) -> dict[int, Any]:
    snapshot = history.snapshot(ts)
    return {i: (v.schema_id, v.physical_ids, public_view(v.schema, v.info)) for i, v in snapshot.tables.items()}


def replayed(pairs: list[tuple[bytes, bytes]], changes: list[SchemaChange], ts: int) -> list[tuple[bytes, bytes]]:
    """The meta pairs as of ts."""
    state = dict(pairs)
    for change in sorted(changes, key=lambda c: (c.commit_ts, c.start_ts)):
        if not change.table_id and change.commit_ts <= ts:
            if change.value is None:
                state.pop(change.key, None)
            else:
                state[change.key] = change.value
    return sorted(state.items())


@pytest.mark.slow
def test_bootstrap_anywhere_gives_the_same(changes: list[SchemaChange], history: SchemaHistory, end: int) -> None:
    """Also inside of every kind of DDL: at commit ts of the cases about partitions, columns, tables and schemas."""
    _, pairs = golden_snapshot(0)
    cases = {"partition_range", "ddl_columns", "ddl_table", "ddl_schema_misc", "ddl_create_tables"}
    lines = [line for line in read_lines("ticdc/rawkv.jsonl.gz") if line["kind"] == "ddl_job" and line["case"] in cases]
    all_ts = sorted({line["commit_ts"] for line in lines})
    kept = [change for change in changes if change.table_id or meta_filter(change.key)]
    for ts in one_in(4, all_ts[:: max(1, len(all_ts) // 16)]):
        other = SchemaHistory.bootstrap(ts, [pair for pair in replayed(pairs, changes, ts) if meta_filter(pair[0])])
        other.advance(kept, end)
        assert_same_from(ts, end, history, other)


def test_jobs_alone_give_the_same_tables_and_events(changes: list[SchemaChange], history: SchemaHistory, end: int) -> None:
    """A log that has the rows of DDL jobs but not the meta keys: every DDL stands where it is done."""
    jobs = [change for change in changes if change.table_id]
    recover = next(c.commit_ts for c in jobs if c.value and b"flashback database" in c.value and b'"state":4' in c.value)
    alone = SchemaHistory.bootstrap(*golden_snapshot(0))
    alone.advance(jobs, recover - 1)
    events, full = alone.ddl_events(alone.start_ts, recover - 1), history.ddl_events(history.start_ts, recover - 1)
    assert [(e.job_id, e.seq, e.type, e.schema, e.table, e.pre_table, e.query) for e in events] == [
        (e.job_id, e.seq, e.type, e.schema, e.table, e.pre_table, e.query) for e in sorted(full, key=lambda e: (e.done_ts, e.seq))
    ]
    assert all(event.ts == event.done_ts for event in events)
    calm = [change.commit_ts for change in changes if change.table_id and change.value is None and change.commit_ts < recover]
    for ts in calm:  # between DDLs, when a job's row is gone
        assert seen(alone, ts) == seen(history, ts)


def test_the_job_table_is_found() -> None:
    _, pairs = golden_snapshot(0)
    assert job_table_id(pairs) == keys.DDL_JOB_TABLE_ID
