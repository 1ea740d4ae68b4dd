"""DDL jobs of a real TiDB in all their steps, and both shapes of arguments."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

from tests.support.schema import schemas as s
from tidemill.errors import SchemaError
from tidemill.tidb.schema.codes import Action, JobState
from tidemill.tidb.schema.job import DdlJob, Exchange, Rename


@pytest.fixture(scope="module")
def recorded() -> list[s.Json]:
    return list(s.read_lines("tikv/ddl_jobs.jsonl.gz"))


STATE_NAMES = {
    JobState.QUEUEING: "queueing",
    JobState.RUNNING: "running",
    JobState.DONE: "done",
    JobState.SYNCED: "synced",
    JobState.ROLLING_BACK: "rollingback",
    JobState.ROLLBACK_DONE: "rollbackdone",
    JobState.CANCELLED: "cancelled",
}


def test_every_step_is_read(recorded: list[s.Json]) -> None:
    summaries = s.read_json("tikv/ddl_summary.json.gz")
    for line, summary in zip(recorded, summaries, strict=True):
        jobs = [(version, DdlJob.from_json(version["job"])) for version in line["versions"] if version.get("job")]
        live = [job for version, job in jobs if version["src"] == "tidb_ddl_job"]
        states = [state for state, _ in summary["states"] if not state.startswith(("deleted", "history"))]
        steps = [key for key, _ in groupby((STATE_NAMES[JobState(job.state)], job.schema_state) for job in live)]
        assert [state for state, _ in steps] == states
        done = next((job for job in live if job.state == JobState.DONE), None)
        assert {job.query for job in live} == {line["sql"]} or line["type"] == Action.MULTI_SCHEMA_CHANGE
        assert all(job.action == line["type"] and isinstance(job.action, Action) for job in live)
        if done is not None:
            assert done.schema_version == summary["schema_version"]
            assert (done.table_info.id if done.table_info else None) == summary["tableinfo_id"]
            assert [info.id for info in done.table_infos] == [entry[0] if isinstance(entry, list) else entry for entry in ids(summary)]


def ids(summary: s.Json) -> list[Any]:
    return [entry.get("id", entry) if isinstance(entry, dict) else entry for entry in summary["multi"]]


def args(action: Action, value: Any, **members: Any) -> DdlJob:
    return DdlJob.from_json(s.job(1, action, 4, raw_args=value, **members))


NAME = {"O": "New", "L": "new"}


def test_renames_in_both_shapes() -> None:
    want = (Rename(5, 1, "D", "Old", 2, "New"),)
    named = {"old_schema_name": {"O": "D"}, "old_table_name": {"O": "Old"}, "new_table_name": NAME}
    pair = {"table_id": 5, "old_schema_id": 1, "new_schema_id": 2, **named}
    assert args(Action.RENAME_TABLES, {"rename_table_infos": [pair]}).renames == want
    positional = [[1], [2], [NAME], [5], [{"O": "D"}], [{"O": "Old"}]]
    assert args(Action.RENAME_TABLES, positional).renames == want
    assert args(Action.RENAME_TABLES, positional[:4]).renames == (Rename(5, 1, "", "", 2, "New"),)


def test_exchange_in_both_shapes() -> None:
    want = Exchange(1, 2, 3, "p0")
    named = {"pt_schema_id": 1, "pt_table_id": 2, "partition_id": 3, "partition_name": "p0", "with_validation": True}
    assert args(Action.EXCHANGE_PARTITION, named).exchange == want
    assert args(Action.EXCHANGE_PARTITION, [3, 1, 2, "p0", True]).exchange == want


def test_created_tables_in_both_shapes() -> None:
    first, second = s.table(5, "a"), s.table(6, "b")
    assert args(Action.CREATE_TABLES, {"tables": [{"table_info": first}, {"table_info": second}]}).created_ids == (5, 6)
    assert args(Action.CREATE_TABLES, [[first, second], True]).created_ids == (5, 6)
    assert args(Action.CREATE_TABLES, None, table_infos=[second, first]).created_ids == (6, 5)


@pytest.mark.parametrize(
    ("action", "value", "member"),
    [
        (Action.RENAME_TABLES, [[1]], "renames"),
        (Action.RENAME_TABLES, {"rename_table_infos": [{}]}, "renames"),
        (Action.EXCHANGE_PARTITION, [1], "exchange"),
        (Action.EXCHANGE_PARTITION, {"partition_id": 1}, "exchange"),
        (Action.CREATE_TABLES, {"tables": 5}, "created_ids"),
        (Action.CREATE_TABLES, [5], "created_ids"),
    ],
)
def test_arguments_that_cannot_be_read(action: Action, value: Any, member: str) -> None:
    job = args(action, value)
    with pytest.raises(SchemaError, match="job 1"):
        getattr(job, member)


def test_unknown_codes_pass_as_numbers() -> None:
    job = DdlJob.from_json(s.job(1, 230, 99))
    assert (job.action, job.state, job.is_done) == (230, 99, False)


def test_a_job_is_done_or_synced() -> None:
    states = [state for state in JobState if DdlJob.from_json(s.job(1, 3, state)).is_done]
    assert states == [JobState.DONE, JobState.SYNCED]


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"nonsense", b'{"id":1,"type":3}', b'{"id":1,"type":3,"state":4,"binlog":5}'])
def test_what_is_no_job(text: bytes) -> None:
    with pytest.raises(SchemaError):
        DdlJob.parse(text)


def test_bytes_that_are_no_utf8_do_not_stop_a_job() -> None:
    assert DdlJob.parse(b'{"id":1,"type":3,"state":4,"query":"create table t /* \xff */"}').query.endswith("\ufffd */")
