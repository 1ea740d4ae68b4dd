"""A driver of a changefeed as the product puts it together, but for Spark: log, fence, checkpoint, batch machine, sink.

Its effects on the fence and the checkpoint pass the gate of its actor; those on the sink do where a test replaces what the sink is opened
with. A job of tasks is one effect.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path

from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.saved import saved
from tests.support.simulate.actors import Actor, current_gate
from tidemill.changefeed.feed_folder import FeedFolder
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader
from tidemill.config.file import parse_config
from tidemill.delivery.build import Delivery
from tidemill.delivery.epoch_fence import Fence
from tidemill.delivery.inputs.log_source import next_end
from tidemill.delivery.inputs.table_router import Settings
from tidemill.delivery.machine.actions import Report
from tidemill.delivery.machine.batch_machine import under_way
from tidemill.delivery.machine.retry import RetryPolicy
from tidemill.delivery.position import Plan, Position, SavedPosition
from tidemill.delivery.task.run import run as run_item
from tidemill.delivery.work_item import TaskResult, WorkItem


class GatedFence(Fence):
    """A fence each of whose requests is an effect of the driver."""

    def take(self) -> int:
        return current_gate()("take the fence", super().take)

    def advance(self, plan: Plan | None) -> int:
        interval = f" to ({plan.from_ts}, {plan.to_ts}]" if plan is not None else ""
        return current_gate()(f"advance the fence{interval}", lambda: Fence.advance(self, plan))

    def check(self, *, now: bool = False) -> None:
        current_gate()("read the fence", lambda: Fence.check(self, now=now))


class Inline:
    """Runs tasks in the driver's process."""

    parallelism = 1

    def run(self, items: Sequence[WorkItem]) -> list[TaskResult]:
        return current_gate()("run a job", lambda: [run_item(item) for item in items])


@dataclass
class History:
    """A change log made by SQL, with a ts behind each step."""

    log: str
    start_ts: int
    cuts: list[int]
    sql: SqlLog

    @classmethod
    def of(cls, folder: Path, before: Iterable[str], steps: Iterable[Iterable[str]]) -> History:
        """`before`: statements whose rows are not in the log. A step without statements is an interval without changes."""
        sql = SqlLog(*before)
        cuts = [sql.run(*statements) for statements in steps]
        return cls(sql.write(folder), sql.start_ts, cuts, sql)


@dataclass
class Changefeed:
    """What the drivers of one changefeed share. `folder`: for the fence, the checkpoint and packs. `reaches`: up to which ts the log is
    complete for a driver that stands at one; called before each batch."""

    history: History
    folder: Path
    sink: str
    toml: str = ""
    reaches: Callable[[Actor, int], int] | None = None
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def drive(self, actor: Actor) -> None:
        """Deliver from the checkpoint to the end of the history, as a process that has just started."""
        reader = LogReader(self.history.log)
        config = parse_config(self.toml)
        settings = Settings("f", config.sink_uri(self.sink), config, UTC).of_cluster(reader.identity.cluster_id)
        feed = FeedFolder(self.folder / "data", "f")
        with ExitStack() as stack:
            delivery = Delivery.open(stack, settings, threading.Event())
            history = load_history(reader)
            packs = delivery.packs(self.folder / f"packs{next(self.numbers)}")
            fence = GatedFence.at(self.folder / "fence")
            epoch = fence.take()
            actor.gate("claim the checkpoint", lambda: feed.claim(fence.driver, epoch))
            begin = feed.position() or saved(Position(reader.start_ts))
            at: Position = begin
            retry = RetryPolicy(first_s=0.0001, longest_s=0.0002, total_s=60)
            driver = delivery.driver(packs, delivery.source(reader, history, packs), Inline(), fence, retry, started_ts=1)

            def save(report: Report) -> SavedPosition:
                return actor.gate("save the checkpoint", lambda: feed.save_checkpoint(report.end.ts))

            driver.keep_checkpoint(begin, None, save)
            number = 0
            while at.ts < self.history.cuts[-1]:
                cut = self._reaches(actor, at.ts)
                end = (under_way(begin, fence.planned, fence.planned_ranges) if at == begin else None) or Position(
                    next_end(reader, history, at.ts, cut)
                )
                if end == at:  # tables are still being read
                    continue
                driver.deliver(number, at, end)
                at, number = end, number + 1

    def _reaches(self, actor: Actor, at: int) -> int:
        return next(ts for ts in self.history.cuts if ts > at) if self.reaches is None else self.reaches(actor, at)
