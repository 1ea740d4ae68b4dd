"""What it costs to plan batches of a log that is a month old and a tebibyte large.

    python -m bench.bench_month [--days 30]

Logs of a day, a week and a month are made at the rate of a tebibyte a month, as they are at the defaults (`bench/old_log.py`). Then the
product's own reader and planner open each, plan a batch in its middle as a replay does, and plan the batches of its last seconds while it
grows: where the batch ends, what each log partition has of it, the tables, the work items. Milliseconds of CPU; memory is what
Python's allocator counts of what a planner keeps.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any, TypeVar

from bench.old_log import DAY_S, MONTH_S, SECOND, make_old_log
from bench.report.figures import Figure, note
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader
from tidemill.config.file import parse_config
from tidemill.delivery import plan
from tidemill.delivery.inputs.log_source import LogSource, next_end
from tidemill.delivery.inputs.table_pack import PackStore
from tidemill.delivery.inputs.table_router import Settings, TableRouter
from tidemill.delivery.work_item import WorkItem
from tidemill.sinks.spec import open_driver_sink
from tidemill.tidb.schema.tracking.history import SchemaHistory

STAGE = "Planning: a log that is a month old"
BATCHES = 20
Found = TypeVar("Found")
AIMS = {"open": 100.0, "replay": 100.0, "middle": 10.0, "end": 10.0}  # ms of CPU


class Planner:
    """The product's own, of one changefeed: see `batch.BatchDriver`."""

    def __init__(self, log: Path, folder: Path) -> None:
        settings = Settings("bench", parse_config("").sink_uri(SINK), parse_config(""), UTC)
        sink = open_driver_sink(settings.sink.text, fresh=True)
        router = TableRouter(settings, sink.place)
        packs = PackStore(folder, settings.output, router.table, lambda t: sink.ensure_topics(set(t)), [settings.sink.topic])
        self.targets = 4
        self.reader = LogReader(log)
        self.history: SchemaHistory = load_history(self.reader)
        self.source = LogSource(self.reader, self.history, packs, router.ddl)

    def batch(self, at: int, limit: int) -> tuple[int, list[WorkItem]]:
        """Where the batch after `at` ends, and its work items for four executors."""
        end = next_end(self.reader, self.history, at, limit)
        self.source.follow(end)
        inputs = self.source.inputs(at, end)
        given: dict[str, Any] = {"feed": "bench", "batch": 1, "epoch": 1, "from_ts": at, "to_ts": end, "sink": SINK, "fence": ""}
        items = plan.work_items(inputs, 4, pack=self.source.pack(at, end), targets=self.targets, **given)
        return end, items


SINK = "blackhole:///?protocol=open-protocol&partition-num=4"


def timed(work: Callable[[], Found]) -> tuple[float, Found]:
    """Milliseconds of CPU, and what it returns."""
    begin = time.process_time()
    found = work()
    return 1000 * (time.process_time() - begin), found


def measure(days: float, folder: Path) -> None:
    """Print and note what planning costs in a log of so many days."""
    began = time.perf_counter()
    log, growing = make_old_log(folder / "log", round(days * DAY_S))
    made_s = time.perf_counter() - began
    print(f"{days:g} days: {log.bytes / 2**30:,.0f} GiB in {log.files:,} files, {log.rates[0]} rows/s; made in {made_s:.1f} s", flush=True)
    Planner(log.path, folder / "warm").batch(log.end - SECOND, log.end)
    memory = _kept(lambda: Planner(log.path, folder / "kept"), log.end)
    seen: dict[str, float] = {}
    seen["open"], planner = timed(lambda: Planner(log.path, folder / "packs"))
    first, _ = timed(lambda: planner.batch(log.end - 2 * SECOND, log.end))
    seen["open"] += first
    seen["replay"], replay = timed(lambda: Planner(log.path, folder / "replay"))
    first, (at, items) = timed(lambda: replay.batch(log.middle, log.end))
    seen["replay"] += first
    seen["middle"], (end, more) = timed(lambda: replay.batch(at, log.end))
    assert log.middle < at < end
    assert items
    assert more
    spent = 0.0
    for _ in range(BATCHES):
        at = growing.end
        growing.second()
        ms, (end, items) = timed(lambda at=at: planner.batch(at, growing.end))
        assert end == growing.end
        assert items
        spent += ms
    seen["end"] = spent / BATCHES
    for name, text in NAMES.items():
        print(f"  {text}: {seen[name]:.1f} ms", flush=True)
        note(Figure("Growth", text, seen[name], "CPU ms to plan", axis="days that the log is old", at=days))
        if days >= MONTH_S / DAY_S:
            note(Figure(STAGE, text, seen[name], "CPU ms", aim=AIMS[name]))
    print(f"  memory: {memory:.1f} MiB", flush=True)
    if days >= MONTH_S / DAY_S:
        note(Figure(STAGE, "memory of what a planner keeps: log, schemas, packs", memory, "MiB"))


NAMES = {
    "open": "open the log and plan the first batch at its end",
    "replay": "open the log and plan the first batch of a replay from its middle",
    "middle": "plan the next batch of a replay from its middle",
    "end": "plan the next batch at its end",
}


def _kept(opened: Callable[[], Planner], end: int) -> float:
    """MiB that a planner keeps when it has planned at the end of the log."""
    gc.collect()
    tracemalloc.start()
    planner = opened()
    planner.batch(end - SECOND, end)
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0] / (1 << 20)
    tracemalloc.stop()
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=float, nargs="*", default=[1, 7, 30])
    for days in parser.parse_args().days:
        with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as folder:
            measure(days, Path(folder))


if __name__ == "__main__":
    main()
