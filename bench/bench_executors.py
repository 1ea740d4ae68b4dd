"""What more executors are worth, on paper: the planner's own work items for 1, 2, 4 and 8 executors, each run here and its CPU measured.

    python -m bench.bench_executors [--rows 1000000] [--tables 200] [--partitions 16] [--targets 64]

One log for each affinity, with rows spread evenly over the tables and with half of them in one table. A batch takes as long as the executor
that has most to do; a free executor takes the next item, as in Spark. The speed-up is the time of one executor over that; the imbalance is
that time over an even share of the same items. An item that shares log partitions with others reads all of them, so more executors have
more work together. What the driver does between jobs is not counted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path

from bench.bench_pipeline import WARM_UP, delivery
from bench.make_log import Shape, make_log
from bench.report.figures import Figure, note
from tidemill.changelog.log_format import Affinity
from tidemill.delivery.task import run
from tidemill.delivery.work_item import TaskResult, TaskStats, WorkItem

EXECUTORS = (1, 2, 4, 8)
BATCHES = 3
RUNS = 2  # of each item; the lesser counts


class PaperRunner:
    """Plans for so many executors, and runs the items one after the other. `cpu`: ns of each item, a list for each batch."""

    def __init__(self, parallelism: int) -> None:
        self.parallelism = parallelism
        self.cpu: list[list[int]] = []

    def run(self, items: Sequence[WorkItem]) -> list[TaskResult]:
        runs = [[run.run(item) for item in items] for _ in range(RUNS)]
        self.cpu.append([min(one.cpu_ns for one in tries if isinstance(one, TaskStats)) for tries in zip(*runs, strict=True)])
        return runs[0]


def makespan(items: Sequence[int], executors: int) -> int:
    """When the last item ends, if each free executor takes the next item."""
    ends = [0] * executors
    for item in items:
        first = ends.index(min(ends))
        ends[first] += item
    return max(ends)


def spent(log: Path, targets: int, executors: int) -> tuple[float, float, int]:
    """Of some batches of a log: the sum of their makespans, the sum of all items' CPU, in ns, and the most items of one."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemill-bench-")))
        runner = PaperRunner(executors)
        sink = f"blackhole:///?protocol=open-protocol&partition-num={targets}"
        made = delivery(stack, log, sink, "index-value", runner, folder)
        warm_up, ends = made.ends(BATCHES)
        at = made.reader.start_ts
        for number, end in enumerate([*warm_up[-1:], *ends], WARM_UP):
            made.driver.run(number, at, end)
            at = end
    counted = runner.cpu[1:]
    return sum(makespan(items, executors) for items in counted), sum(map(sum, counted)), max(map(len, counted))


def curve(log: Path, name: str, targets: int) -> None:
    """Print and note what each number of executors makes of a log."""
    spent(log, targets, 1)  # builds what tasks keep of a table
    alone = 0.0
    for executors in EXECUTORS:
        last, work, items = spent(log, targets, executors)
        alone = alone or last
        speed_up, imbalance = alone / last, last * executors / work
        print(
            f"{name:44} {executors} executors: {speed_up:5.2f} times one, {items:3} items, imbalance {imbalance:.2f}, "
            f"{work / alone:.2f} times the work",
            flush=True,
        )
        note(Figure("Growth", name, speed_up, "times one executor, on paper", axis="executors", at=executors))
        note(Figure("Growth", name, imbalance, "the last executor's time over an even share", axis="executors", at=executors))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.bench_executors", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=16, help="of the log")
    parser.add_argument("--targets", type=int, default=64, help="partitions of the topic")
    options = parser.parse_args(arguments)
    for affinity, hot in product(Affinity, (False, True)):
        with tempfile.TemporaryDirectory(prefix="tidemill-bench-log-") as folder:
            log = Path(folder) / "log"
            rate = max(options.rows // 300, 1)
            make_log(log, Shape("narrow", options.rows, options.tables, options.partitions, affinity, 30.0, rate, hot=hot))
            name = f"affinity {affinity}, " + ("half of the rows in one table" if hot else "rows spread evenly")
            curve(log, name, options.targets)


if __name__ == "__main__":
    main(sys.argv[1:])
