"""A task: it ends with its epoch, and what tasks did is added up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.changelog.logs import START
from tests.support.delivery.deliveries import settings
from tests.support.delivery.feeds import World
from tests.support.delivery.saved import plan
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader
from tidemill.delivery.epoch_fence import Fence
from tidemill.delivery.inputs.table_pack import PackStore
from tidemill.delivery.inputs.table_router import TableRouter
from tidemill.delivery.plan import PartitionInput, work_items
from tidemill.delivery.task import run
from tidemill.delivery.work_item import TaskFailure, TaskStats, total
from tidemill.protocols.common.messages import Messages
from tidemill.sinks.base import BatchContext, Target


def test_totals() -> None:
    assert total([TaskStats(0, rows=2, messages=1), TaskStats(1, rows=3, cpu_ns=5)]) == TaskStats(-1, rows=5, messages=1, cpu_ns=5)


class Collecting:
    """A sink that begins the next epoch while it takes the first chunk."""

    def __init__(self, fence: Fence) -> None:
        self.fence, self.chunks, self.abandoned = fence, 0, False

    def begin(self, ctx: BatchContext) -> None: ...

    def deliver(self, messages: Messages, targets: Sequence[Target]) -> None:
        self.chunks += 1
        self.fence.advance(plan(1, 2))

    def flush(self) -> int:
        raise AssertionError("a task that is over does not flush")

    def abandon(self) -> None:
        self.abandoned = True


def test_a_task_stops_at_the_chunk_after_its_epoch_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World.make(transactions=200)
    reader = LogReader(world.log(tmp_path / "log"))
    chosen = settings(tmp_path / "out")
    packs = PackStore(tmp_path / "packs", chosen.output, TableRouter(chosen).table, lambda topics: dict.fromkeys(topics, 1))
    pack = packs.pack(load_history(reader).snapshot(START))
    intervals = tuple(reader.chain(0, START, world.end))
    fence = Fence.at(tmp_path)
    epoch = fence.advance(plan(START, world.end))
    sink = Collecting(fence)
    monkeypatch.setattr(run, "open_task_sink", lambda uri: sink)
    monkeypatch.setattr(run.Chunker.__init__, "__defaults__", (50, 1 << 20))
    whole = PartitionInput(0, intervals, (1,) * len(intervals))
    work = work_items(
        [whole], 1, feed="f", batch=1, epoch=epoch, from_ts=START, to_ts=world.end, pack=pack, sink="x",
        fence=fence.place, targets=1,
    )  # fmt: skip
    result = run.run(work[0])
    assert isinstance(result, TaskFailure)
    assert (result.code, result.retryable) == ("TM:ErrFenced", False)
    assert (sink.chunks, sink.abandoned) == (1, True)
    again = run.run(work[0])
    assert isinstance(again, TaskFailure)
    assert sink.chunks == 1  # it did not begin
