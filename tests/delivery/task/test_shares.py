"""Items that share log partitions: together they deliver, target by target and in order, what one item for all targets does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.changelog.logs import START
from tests.support.delivery.deliveries import settings
from tests.support.delivery.feeds import World, expected
from tests.support.delivery.saved import plan
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader
from tidemill.delivery.epoch_fence import Fence
from tidemill.delivery.inputs.table_pack import PackStore
from tidemill.delivery.inputs.table_router import TableRouter
from tidemill.delivery.plan import PartitionInput, work_items
from tidemill.delivery.task import run
from tidemill.delivery.task.chunker import Chunker
from tidemill.delivery.work_item import TaskStats, WorkItem
from tidemill.protocols.common.messages import Messages
from tidemill.sinks.base import BatchContext, Target

TARGETS = 5
COLUMNS = '[[sink.dispatchers]]\nmatcher = ["*.*"]\npartition = "columns"\ncolumns = ["u", "text"]\n'
"""The values of these change, so updates are split and their halves go to two targets."""
Delivered = dict[int, list[tuple[bytes | None, bytes | None]]]


class Keeping:
    """A sink that keeps the key and value of each message, by target."""

    def __init__(self) -> None:
        self.of: Delivered = defaultdict(list)
        self.count = 0

    def begin(self, ctx: BatchContext) -> None: ...

    def deliver(self, messages: Messages, targets: Sequence[Target]) -> None:
        for message in messages.to_list():
            self.of[message.target].append((message.key, message.value))
        self.count += len(messages)

    def flush(self) -> int:
        return self.count

    def abandon(self) -> None: ...


def whole_item(folder: Path, world: World, affinity: str, mode: str, toml: str) -> WorkItem:
    """The item that reads three log partitions and has all targets; a message for each event."""
    reader = LogReader(world.log(folder / "log", partitions=3, segments=4, affinity=affinity))
    chosen = settings(folder / "out", partitions=TARGETS, mode=mode, more="&max-batch-size=1", toml=toml)
    packs = PackStore(
        folder / "packs", chosen.output, TableRouter(chosen).table, lambda topics: dict.fromkeys(topics, TARGETS), [chosen.sink.topic]
    )
    pack = packs.pack(load_history(reader).snapshot(START))
    inputs = []
    for partition in range(3):
        intervals = tuple(reader.chain(partition, START, world.end))
        inputs.append(PartitionInput(partition, intervals, (1,) * len(intervals), unit=0))
    fence = Fence.at(folder)
    (item,) = work_items(
        inputs, 1, feed="f", batch=1, epoch=fence.advance(plan(START, world.end)), from_ts=START, to_ts=world.end, pack=pack, sink="x",
        fence=fence.place, targets=TARGETS,
    )  # fmt: skip
    return item


@pytest.mark.parametrize("affinity", ["table", "key"])
@pytest.mark.parametrize(
    ("mode", "toml"), [("default", ""), ("table", ""), ("ts", ""), ("index-value", ""), ("index-value", COLUMNS)], ids=lambda one: one[-9:]
)
def test_shares_are_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, affinity: str, mode: str, toml: str) -> None:
    """With chunks of fifty rows: one transaction is larger and comes in passes, others begin in one batch and end in the next."""
    world = World.make(seed=3, transactions=120, huge=120)
    item = whole_item(tmp_path, world, affinity, mode, toml)
    monkeypatch.setattr(Chunker.__init__, "__defaults__", (50, 1 << 20))
    sinks: list[Keeping] = []

    def opened(uri: str) -> Keeping:
        sinks.append(Keeping())
        return sinks[-1]

    monkeypatch.setattr(run, "open_task_sink", opened)
    for shares in (1, 2, 3, TARGETS):
        for share in range(shares):
            stats = run.run(replace(item, share=share, shares=shares))
            assert isinstance(stats, TaskStats)
            assert stats.rows_read >= len(world.rows)
    whole = sinks.pop(0).of
    assert sum(map(len, whole.values())) >= 200
    if not toml:
        assert {target: len(found) for target, found in whole.items()} == counts(world, mode)
    for shares in (2, 3, TARGETS):
        found: Delivered = {}
        for share in range(shares):
            mine = sinks.pop(0).of
            assert {target % shares for target in mine} <= {share}
            found |= mine
        assert found == whole


def counts(world: World, mode: str) -> dict[int, int]:
    """How many events each target has, by the reference of dispatch."""
    return {target: sum(map(len, tables.values())) for target, tables in expected(world, mode, TARGETS).items()}
