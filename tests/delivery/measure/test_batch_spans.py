"""Which spans a batch gives."""

from __future__ import annotations

import dataclasses

from tests.support.traces.kept import outline
from tidemill.delivery.machine import actions as A
from tidemill.delivery.machine.failures import Stopped
from tidemill.delivery.measure.batch_spans import MOST_STAGES, MOST_TASKS, BatchSpans
from tidemill.delivery.position import Position
from tidemill.delivery.work_item import TaskFailure, TaskStats, WorkItem, total
from tidemill.errors import SinkUnavailable
from tidemill.tidb.schema.events import DdlEvent

MS = 1_000_000
ATTEMPT = A.Attempt(3, 7, 100, 200)
DDL = DdlEvent(200, 200, 9, 1, 0, 3, "bank", "accounts", "", "", 5, "ALTER TABLE t COMMENT 'PIN 1234'", "", True)
STATS = TaskStats(0, worker=42, rows_read=9, rows=8, messages=4, bytes_out=50, route_ns=2 * MS, encode_ns=MS, flush_ns=3 * MS, cpu_ns=MS)


def item(number: int) -> WorkItem:
    return WorkItem("feed", 3, 7, number, 100, 200, (0,), (), 0, 1, "pack", "mysql://root:s3cret@db/", "fence")


def spans() -> BatchSpans:
    return BatchSpans("feed", 3, Position(100), Position(200), 0)


def report(attempts: int = 1) -> A.Report:
    return A.Report(3, 100, 200, 7, attempts, total([STATS]), (DDL,))


def test_a_batch() -> None:
    made = spans()
    made.answered(A.LearnSchemas(100, 200), 0, 10)  # too short to be seen
    made.answered(A.TakeEpoch(None), 0, 1 * MS)
    made.answered(A.CheckTopics(), 1 * MS, 2 * MS)  # never has one
    made.answered(A.PlanRows(ATTEMPT), 2 * MS, 3 * MS)
    made.tasks([dataclasses.replace(STATS, began_ns=5 * MS)])
    made.answered(A.RunJob((item(0),)), 3 * MS, 20 * MS)
    made.answered(A.SendDdl(DDL), 20 * MS, 20 * MS)
    made.answered(A.SendResolved(200), 20 * MS, 21 * MS)
    made.answered(A.FinishAttempt(ATTEMPT), 21 * MS, 22 * MS)
    made.answered(A.SaveCheckpoint(report()), 22 * MS, 23 * MS)
    root = made.delivered(report(), 24 * MS)
    assert outline(root) == "batch(fence, plan, job(task(route, encode, flush)), ddl, resolved, finish, checkpoint)"
    assert (root.begun_ns, root.ended_ns, root.error) == (0, 24 * MS, "")
    assert root.attributes == {
        "tidemill.changefeed": "feed", "tidemill.batch": 3, "tidemill.from_ts": 100, "tidemill.to_ts": 200, "tidemill.epoch": 7,
        "tidemill.attempts": 1, "tidemill.rows": 8, "tidemill.messages": 4, "tidemill.bytes": 50, "tidemill.ddls": 1,
        "tidemill.cpu_ms": 1.0,
    }  # fmt: skip
    job, ddl = root.children[2], root.children[3]
    assert (job.begun_ns, job.ended_ns) == (3 * MS, 20 * MS)
    assert job.attributes == {"tidemill.epoch": 7, "tidemill.tasks": 1}
    assert ddl.attributes == {"tidemill.schema": "bank", "tidemill.table": "accounts", "tidemill.ts": 200, "tidemill.job_id": 9}
    assert "s3cret" not in repr(root)
    assert "PIN" not in repr(root)
    [task] = job.children
    assert (task.begun_ns, task.ended_ns) == (5 * MS, 11 * MS)
    assert [(one.begun_ns, one.ended_ns) for one in task.children] == [(5 * MS, 7 * MS), (7 * MS, 8 * MS), (8 * MS, 11 * MS)]
    assert task.attributes == {
        "tidemill.task": 0, "process.pid": 42, "tidemill.rows_read": 9, "tidemill.rows": 8, "tidemill.messages": 4, "tidemill.bytes": 50,
        "tidemill.cpu_ms": 1.0,
    }  # fmt: skip


def test_a_task_is_within_its_job_whatever_its_workers_clock_says() -> None:
    took = 6 * MS
    for began, begun in ((0, 100 * MS), (1, 100 * MS), (105 * MS, 105 * MS), (10**18, 120 * MS - took)):
        made = spans()
        made.tasks([dataclasses.replace(STATS, began_ns=began)])
        made.answered(A.RunJob((item(0),)), 100 * MS, 120 * MS)
        [task] = made.delivered(report(), 130 * MS).children[0].children
        assert (task.begun_ns, task.ended_ns) == (begun, begun + took)


def test_a_batch_that_is_tried_again_has_all_attempts_and_pauses() -> None:
    made, away = spans(), SinkUnavailable("kafka://k/ is away")
    made.answered(A.TakeEpoch(None), 0, MS)
    made.tasks([STATS, TaskFailure(1, "TM:ErrSinkUnavailable", "away", True)])
    made.answered(A.RunJob((item(0), item(1))), MS, 2 * MS)
    made.answered(A.CheckTopics(), 2 * MS, 3 * MS, away)  # what fails is told, whatever it is
    made.answered(A.Wait(1.0), 3 * MS, 1003 * MS)
    made.answered(A.TakeEpoch(None), 1003 * MS, 1004 * MS)
    root = made.failed(away, 1005 * MS)
    assert outline(root) == "batch(fence, job(task(route, encode, flush), task), CheckTopics, pause, fence)"
    assert (root.attributes["tidemill.attempts"], root.error, root.message) == (2, away.code, "kafka://k/ is away")
    assert (root.children[2].error, root.children[2].message) == (away.code, away.message)
    failed = root.children[1].children[1]
    assert (failed.error, failed.message, failed.attributes) == ("TM:ErrSinkUnavailable", "away", {"tidemill.task": 1})


def test_a_stop_is_no_error() -> None:
    root = spans().failed(Stopped("stopped"), 5)
    assert (root.error, root.attributes["tidemill.stopped"]) == ("", True)


def test_tasks_of_one_job_are_not_those_of_the_next() -> None:
    made = spans()
    made.tasks([STATS])
    made.answered(A.RunJob((item(0),)), 0, MS)
    made.answered(A.RunJob((item(0),)), MS, 2 * MS, SinkUnavailable("away"))
    assert outline(made.delivered(report(2), 3 * MS)) == "batch(job(task(route, encode, flush)), job)"


def test_a_trace_has_an_end() -> None:
    """Of a thousand tasks the longest are shown, and those that failed; of a thousand attempts the first."""
    made = spans()
    tasks = [dataclasses.replace(STATS, number=n, route_ns=n) for n in range(1000)]
    made.tasks([TaskFailure(5, "TM:ErrX", "", False), *tasks[6:]])
    made.answered(A.RunJob((item(0),)), 0, MS)
    for number in range(1000):
        made.answered(A.Wait(1.0), number, number)
    root = made.delivered(report(), 5 * MS)
    shown = [one.attributes["tidemill.task"] for one in root.children[0].children]
    assert shown == [5, *range(1000 - MOST_TASKS + 1, 1000)]
    assert len(root.children) == MOST_STAGES
    assert root.attributes["tidemill.spans_left_out"] == 1001 - MOST_STAGES
