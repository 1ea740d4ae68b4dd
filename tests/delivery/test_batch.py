"""The batch driver with everything around it made up: order of calls, attempts, epochs, stop."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support.delivery.saved import saving
from tests.support.faults.away import Mount
from tidemill.changelog.log_format import Interval
from tidemill.delivery.batch import BatchDriver
from tidemill.delivery.epoch_fence import Fence
from tidemill.delivery.machine.failures import ExecutorLost, JobLost, Stopped, error_of
from tidemill.delivery.machine.retry import Pauses, RetryPolicy
from tidemill.delivery.plan import PartitionInput
from tidemill.delivery.position import Position, Ranges, SavedPosition
from tidemill.delivery.task import run
from tidemill.delivery.work_item import TaskFailure, TaskResult, TaskStats, WorkItem
from tidemill.errors import (
    BatchFailed,
    ConfigError,
    DiskLow,
    LogCorrupt,
    LogRefused,
    LogUnavailable,
    MessageTooLarge,
    SegmentGone,
    SinkUnavailable,
    TidemillError,
)
from tidemill.sinks.base import BatchContext
from tidemill.sinks.event_messages import EventMessages, MessageDriver
from tidemill.tidb.schema.events import DdlEvent

QUICK = RetryPolicy(first_s=0.001, longest_s=0.001, total_s=2.5, storage_word_s=1000)


def ddl(ts: int, seq: int = 0) -> DdlEvent:
    return DdlEvent(ts, ts, 1, 1, seq, 3, "s", "t", "", "", 5, f"DDL {seq}", "", True)


@dataclass
class Surroundings(MessageDriver):
    """BatchSource, events, sink and runner in one; notes what is called."""

    rows: bool = True
    events: list[DdlEvent] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)
    outcome: Callable[[Sequence[WorkItem]], list[TaskResult]] = lambda items: [TaskStats(i.number, messages=2, acked=2) for i in items]
    fail_finish: list[TidemillError] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)
    parallelism: int = 2

    def __post_init__(self) -> None:
        self.speak(EventMessages(self, lambda topic: 2, self.targets))

    # upstream
    def follow(self, to_ts: int) -> None:
        self.calls.append(("follow", to_ts))

    def inputs(self, from_ts: int, to_ts: int, ranges: Ranges = ()) -> list[PartitionInput]:
        return [PartitionInput(0, (Interval(from_ts, to_ts, ("x",)),), (10,))] if self.rows else [PartitionInput(0, (), ())]

    def barriers(self, from_ts: int, to_ts: int) -> list[int]:
        return [s for s in self.stops if from_ts < s <= to_ts]

    def ddl_events(self, from_ts: int, to_ts: int) -> list[DdlEvent]:
        return self.events

    def pack(self, from_ts: int, to_ts: int, ranges: Ranges = ()) -> str:
        return f"pack-{from_ts}"

    def refresh(self) -> None:
        self.calls.append("refresh")

    # runner
    def run(self, items: Sequence[WorkItem]) -> list[TaskResult]:
        self.calls.append(("rows", items[0].epoch))
        return self.outcome(items)

    # sink
    def begin_batch(self, ctx: BatchContext) -> None:
        self.calls.append(("begin", ctx.epoch))

    def send(self, topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[int]) -> None:
        self.calls.append(("ddl", value, list(partitions)))

    def send_resolved(self, targets: Sequence[tuple[str, int]], key: bytes | None, value: bytes | None) -> None:
        self.calls.append(("resolved", key, list(targets)))

    # control messages
    ddl_on_first_partition = False

    def ddl_message(self, event: DdlEvent) -> tuple[bytes, bytes]:
        return b"key", event.query.encode()

    def resolved_message(self, ts: int) -> tuple[bytes, bytes]:
        return str(ts).encode(), b""

    # events
    def downstream(self, event: DdlEvent) -> tuple[DdlEvent, str]:
        return event, "topic"

    def targets(self) -> list[tuple[str, int]]:
        return [("topic", 0), ("topic", 1)]

    def finish_batch(self, ctx: BatchContext) -> None:
        if self.fail_finish:
            raise self.fail_finish.pop()
        self.calls.append("finish")

    def discard(self, ctx: BatchContext) -> None:
        self.calls.append(("discard", ctx.epoch))

    def ensure_topics(self, topics: set[str]) -> dict[str, int]:
        return dict.fromkeys(topics, 2)

    def close(self) -> None: ...


def driver(around: Surroundings, folder: Path, **more: Any) -> BatchDriver:
    return BatchDriver(
        "feed", around, around, around, "blackhole://", around, Fence.at(folder), retry=QUICK, clock=partial(next, count()), **more
    )


def test_where_only_some_log_partitions_get_further_nothing_is_promised(tmp_path: Path) -> None:
    around = Surroundings(events=[ddl(20)])
    report = driver(around, tmp_path).run(0, 10, 10, ((10, 10), (12, 20)))
    assert [c for c in around.calls if c[0] in ("ddl", "resolved")] == []
    assert (report.ddls, report.end) == ((), Position.of([10, 20]))
    report = driver(around, tmp_path).run(1, 10, 20, ((10, 20), (20, 20)))
    assert [c[0] for c in around.calls if c[0] in ("ddl", "resolved")] == ["ddl", "resolved"]
    assert report.end == Position(20)


def test_rows_then_ddls_then_resolved(tmp_path: Path) -> None:
    around = Surroundings(events=[ddl(20, 0), ddl(20, 1)])
    report = driver(around, tmp_path).run(7, 10, 20)
    assert around.calls == [
        ("follow", 20),
        ("begin", 1),
        ("rows", 1),
        ("ddl", b"DDL 0", [0, 1]),
        ("ddl", b"DDL 1", [0, 1]),
        ("resolved", b"20", [("topic", 0), ("topic", 1)]),
        "finish",
    ]
    assert (report.stats.messages, report.attempts, len(report.ddls)) == (2, 1, 2)


def test_without_rows_no_job_runs(tmp_path: Path) -> None:
    around = Surroundings(rows=False)
    driver(around, tmp_path).run(0, 10, 20)
    assert around.calls == [("follow", 20), ("begin", 1), ("resolved", b"20", [("topic", 0), ("topic", 1)]), "finish"]


def test_a_barrier_inside_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BatchFailed, match="15"):
        driver(Surroundings(stops=[15, 20]), tmp_path).run(0, 10, 20)
    driver(Surroundings(stops=[10, 20]), tmp_path).run(0, 10, 20)


def test_a_try_that_fails_is_over_before_the_next_begins(tmp_path: Path) -> None:
    failures = [TaskFailure(0, SinkUnavailable.code, "away", True)]
    around = Surroundings(outcome=lambda items: [failures.pop()] if failures else [TaskStats(0, messages=1, acked=1)])
    seen: list[TidemillError] = []
    report = driver(around, tmp_path, on_failure=seen.append).run(3, 10, 20)
    assert report.attempts == 2
    assert around.calls[1:4] == [("begin", 1), ("rows", 1), ("discard", 1)]
    assert around.calls[4:6] == [("begin", 3), ("rows", 3)]  # epoch 2 only ended epoch 1
    assert [type(e) for e in seen] == [SinkUnavailable]


def test_from_a_checkpoint_on_each_batch_is_saved_once_and_the_target_ends_it(tmp_path: Path) -> None:
    around = Surroundings(events=[ddl(20)])
    one = driver(around, tmp_path, on_ddl=lambda event: around.calls.append("told"))
    one.keep_checkpoint(SavedPosition(10), 35, saving(lambda report: around.calls.append(("save", report.end))))
    assert one.deliver(0, Position(5), Position(20)) is not None
    assert around.calls[-2:] == ["told", ("save", Position(20))]
    seen = len(around.calls)
    assert one.deliver(0, Position(5), Position(20)) is None, "Spark had not noted it"
    assert len(around.calls) == seen
    report = one.deliver(1, Position(20), Position(40))
    assert report is not None
    assert (report.from_ts, report.to_ts, one.delivered, one.reached, one.over) == (20, 35, Position(35), True, True)


def test_what_cannot_be_saved_ends_it_and_is_not_delivered_again_here(tmp_path: Path) -> None:
    around = Surroundings()

    def save(report: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    one = driver(around, tmp_path)
    one.keep_checkpoint(SavedPosition(10), None, save)
    with pytest.raises(LogUnavailable, match="Input/output error"):
        one.deliver(0, Position(10), Position(20))
    assert one.over
    assert sum(c[0] == "rows" for c in around.calls) == 1


def test_the_interval_of_a_batch_stays_known_while_bootstrap_messages_are_sent(tmp_path: Path) -> None:
    """A driver that dies then is followed by one that ends the batch at the same ts, as an attempt before may have begun it."""
    around, planned = Surroundings(), []

    def bootstraps() -> list[tuple[str, bytes, bytes, list[int]]]:
        return [("topic", b"k", b"bootstrap", [0])]

    one = driver(around, tmp_path, bootstraps=bootstraps)
    around.send = lambda *message: planned.append(one.fence.planned)  # type: ignore[method-assign]
    one.keep_checkpoint(SavedPosition(10), None, saving(lambda report: None))
    one.deliver(0, Position(10), Position(20))
    assert planned == [(10, 20)]


def test_a_failure_of_the_sink_repeats_rows_and_ddls(tmp_path: Path) -> None:
    around = Surroundings(events=[ddl(20)], fail_finish=[SinkUnavailable("away")])
    driver(around, tmp_path).run(3, 10, 20)
    assert [c for c in around.calls if c[0] == "ddl"] == [("ddl", b"DDL 0", [0, 1])] * 2


def test_it_gives_up_with_the_cause(tmp_path: Path) -> None:
    around = Surroundings(outcome=lambda items: [TaskFailure(0, SinkUnavailable.code, "no broker", True)])
    with pytest.raises(SinkUnavailable, match=r"^no broker \(batch 3 of feed, \(10, 20\], 4 attempts\)") as caught:
        driver(around, tmp_path).run(3, 10, 20)
    assert caught.value.retryable


@pytest.mark.parametrize("error", [SinkUnavailable, ExecutorLost])
def test_it_says_which_limit_ended_the_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[TidemillError]) -> None:
    """--sink-retry limits them whatever failed: also where executors were lost."""
    monkeypatch.setattr("tidemill.delivery.machine.batch_machine.GRACE_S", 0.001)
    around = Surroundings(outcome=lambda items: [TaskFailure(0, error.code, "gone", True)])
    with pytest.raises(error) as caught:
        driver(around, tmp_path).run(3, 10, 20)
    assert caught.value.hint.startswith("An attempt that fails later than 2.5 s after the first failure is the last one, whatever failed (")
    assert "--sink-retry" in caught.value.hint


def test_it_says_that_a_job_that_is_lost_has_a_limit_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.delivery.machine.batch_machine.GRACE_S", 0.001)
    around = Surroundings(outcome=lambda items: [TaskFailure(0, JobLost.code, "gone", True)])
    with pytest.raises(JobLost, match="3 attempts") as caught:
        driver(around, tmp_path).run(3, 10, 20)
    assert caught.value.hint == "Spark has given this batch up 3 times in this process; `tidemill run` starts a new one after a pause."


def test_what_cannot_be_mended_is_not_tried_again(tmp_path: Path) -> None:
    results = [TaskFailure(0, SinkUnavailable.code, "away", True), TaskFailure(1, MessageTooLarge.code, "17 bytes", False)]
    around = Surroundings(outcome=lambda items: list(results))
    with pytest.raises(MessageTooLarge, match=r"^17 bytes "):
        driver(around, tmp_path).run(3, 10, 20)
    assert sum(c[0] == "rows" for c in around.calls) == 1


def test_a_lost_job_is_tried_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.delivery.machine.batch_machine.GRACE_S", 0.001)

    def lose(items: Sequence[WorkItem]) -> list[TaskResult]:
        raise JobLost("the worker died")

    around = Surroundings(outcome=lose)
    with pytest.raises(JobLost, match="3 times"):
        driver(around, tmp_path).run(3, 10, 20)


def test_a_segment_that_is_gone_makes_it_look_again(tmp_path: Path) -> None:
    failures = [TaskFailure(0, SegmentGone.code, "x", True)]
    around = Surroundings(outcome=lambda items: [failures.pop()] if failures else [TaskStats(0)])
    driver(around, tmp_path).run(3, 10, 20)
    assert "refresh" in around.calls


@pytest.mark.parametrize(("stats", "message"), [([], "answered"), ([TaskStats(0, messages=5, acked=4)], "4 of 5")])
def test_every_item_has_to_be_acknowledged(tmp_path: Path, stats: list[TaskResult], message: str) -> None:
    with pytest.raises(BatchFailed, match=message):
        driver(Surroundings(outcome=lambda items: stats), tmp_path).run(3, 10, 20)


def test_a_stop_ends_the_waiting(tmp_path: Path) -> None:
    stop = threading.Event()
    around = Surroundings(outcome=lambda items: [TaskFailure(0, SinkUnavailable.code, "away", True)])
    running = BatchDriver("feed", around, around, around, "", around, Fence.at(tmp_path), RetryPolicy(first_s=60), stop)
    running.on_failure = lambda error: stop.set()
    with pytest.raises(Stopped, match="away"):
        running.run(3, 10, 20)


def test_errors_of_tasks_come_back_as_they_were() -> None:
    error = error_of(TaskFailure(0, LogCorrupt.code, "hole", False))
    assert type(error) is LogCorrupt
    other = error_of(TaskFailure(0, "TM:ErrOfTomorrow", "?", True))
    assert (other.code, other.retryable) == ("TM:ErrOfTomorrow", True)
    assert type(error_of(TaskFailure(0, ConfigError.code, "x", False))) is ConfigError


def paused(policy: tuple[float, float, float], try_s: float = 0.0) -> list[float]:
    """Return the pauses between attempts, which take this long."""
    now, found, pauses = 0.0, list[float](), Pauses(RetryPolicy(*policy))
    while (pause := pauses.after_failure(now)) is not None:
        found.append(pause)
        now += pause + try_s
    return found


def test_pauses_double_up_to_the_longest_until_the_time_is_over() -> None:
    assert paused((1, 4, 12)) == [1, 2, 4, 4, 4]


def test_attempts_that_take_long_count_as_well() -> None:
    """A sink that is away lets each attempt wait for its client's time-out."""
    assert paused((1, 30, 20), try_s=60) == [1]


# ---- storage that is away


def test_storage_that_is_away_is_waited_for_without_end_and_told_once_in_a_while(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Longer than a sink would be; the log, and a disk that is full. The sink's own time does not run meanwhile."""
    failures: list[TidemillError] = [SinkUnavailable("sink away"), *[LogUnavailable("log away")] * 40, DiskLow("disk full")]
    around = Surroundings()
    around.fail_finish = [SinkUnavailable("sink away"), *reversed(failures)]
    seen: list[TidemillError] = []
    with caplog.at_level("WARNING"):
        report = driver(around, tmp_path, on_failure=seen.append).run(0, 10, 20)
    assert report.attempts == 44
    assert len(seen) == 43
    assert around.calls.count("finish") == 1
    assert len([c for c in around.calls if c[0] == "discard"]) == 43
    assert [r.message.split(",")[0] for r in caplog.records if "waits for storage" in r.message] == ["log away (batch 0 waits for storage"]


def test_a_lost_job_is_tried_as_often_as_ever_whatever_the_storage_did_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.delivery.machine.batch_machine.GRACE_S", 0.0)
    around = Surroundings()
    around.fail_finish = [JobLost("gone")] * 2 + [LogUnavailable("away")] * 5
    assert driver(around, tmp_path).run(0, 10, 20).attempts == 8
    around.fail_finish = [JobLost("gone")] * 3 + [LogUnavailable("away")] * 5
    with pytest.raises(JobLost):
        driver(around, tmp_path).run(1, 20, 30)


def test_a_stop_ends_the_wait_for_storage(tmp_path: Path) -> None:
    stop = threading.Event()
    around = Surroundings()
    around.fail_finish = [LogUnavailable("away")] * 1000
    with pytest.raises(Stopped, match="away"):
        driver(around, tmp_path, stop=stop, on_failure=lambda error: stop.set()).run(0, 10, 20)


@pytest.mark.parametrize("where", ["follow", "inputs", "pack"])
@pytest.mark.parametrize(("number", "kind"), [(errno.EIO, LogUnavailable), (errno.ENOSPC, DiskLow), (errno.ENOENT, BatchFailed)])
def test_an_error_of_the_operating_system_in_the_driver_is_coded_discarded_and_tried_again(
    tmp_path: Path, where: str, number: int, kind: type[TidemillError]
) -> None:
    around = Surroundings()
    does, left = getattr(around, where), [2]

    def fails(*arguments: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise OSError(number, os.strerror(number))
        return does(*arguments)

    setattr(around, where, fails)
    seen: list[TidemillError] = []
    assert driver(around, tmp_path, on_failure=seen.append).run(0, 10, 20).attempts == 3
    assert [type(e) for e in seen] == [kind] * 2
    assert all(e.code.startswith("TM:Err") for e in seen)
    assert len([c for c in around.calls if c[0] == "discard"]) == (0 if where == "follow" else 2)


def test_an_error_of_the_operating_system_that_stays_ends_with_its_code(tmp_path: Path) -> None:
    around = Surroundings()

    def fails(from_ts: int, to_ts: int, ranges: Ranges = ()) -> list[PartitionInput]:
        raise PermissionError(errno.EACCES, "Permission denied")

    around.inputs = fails  # type: ignore[method-assign]
    with pytest.raises(LogRefused, match=r"Permission denied.*batch 0 of feed"):
        driver(around, tmp_path).run(0, 10, 20)
    assert ("discard", 1) in around.calls


def test_a_full_disk_below_the_fence_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    around = Surroundings()
    one = driver(around, tmp_path / "fence")
    mount = Mount(tmp_path / "fence", monkeypatch)
    mount.number = errno.ENOSPC
    seen: list[TidemillError] = []

    def note(error: TidemillError) -> None:
        seen.append(error)
        if len(seen) == 5:
            mount.number = None

    one.on_failure = note
    report = one.run(0, 10, 20)
    assert [type(e) for e in seen] == [DiskLow] * 5
    assert ("rows", report.epoch) in around.calls


def test_a_task_tells_of_its_machines_disk_with_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(number: int) -> Callable[[WorkItem], TaskStats]:
        def deliver(item: WorkItem) -> TaskStats:
            raise OSError(number, os.strerror(number), "/mnt/pack")

        return deliver

    item: Any = type("Item", (), {"number": 3})()
    for number, code in ((errno.ESTALE, LogUnavailable.code), (errno.ENOSPC, DiskLow.code), (errno.EACCES, LogRefused.code)):
        monkeypatch.setattr(run, "deliver", failing(number))
        told = run.run(item)
        assert isinstance(told, TaskFailure)
        assert (told.number, told.code) == (3, code)
        assert "/mnt/pack" in told.message
    monkeypatch.setattr(run, "deliver", failing(errno.ENOENT))
    with pytest.raises(FileNotFoundError):
        run.run(item)
