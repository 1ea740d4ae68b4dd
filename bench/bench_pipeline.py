"""What delivering costs: a change log through the pipeline into a sink, in this process and by Spark. CPU a row, rows a second.

    python -m bench.bench_pipeline narrow mixed --rows 2000000                  into the black hole
    python -m bench.bench_pipeline narrow --sink 'kafka://127.0.0.1:9092/t?protocol=open-protocol&partition-num=4'
    python -m bench.bench_pipeline mixed --corpora ../shared/bench --dispatcher index-value --affinity key

CPU is user + system: of the driver, of Java, and of the Python workers with what they forked. The first tenth of the log
warms everything up and does not count. TiCDC's own cost a row (its puller included), measured elsewhere, is shown beside: 10.5 µs narrow,
21.5 µs mixed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC
from pathlib import Path
from typing import Any

from bench.make_log import Shape, make_log
from bench.processes import Cpu
from bench.report import limits
from bench.report.figures import Figure, Limit, note
from tidemill.changelog.history import load_history
from tidemill.changelog.log_format import Affinity
from tidemill.changelog.reader import LogReader
from tidemill.config.file import parse_config
from tidemill.delivery.batch import BatchDriver, JobRunner
from tidemill.delivery.epoch_fence import Fence
from tidemill.delivery.inputs.log_source import LogSource
from tidemill.delivery.inputs.table_pack import PackStore
from tidemill.delivery.inputs.table_router import Settings, SinkEvents, TableRouter
from tidemill.delivery.work_item import TaskStats, total
from tidemill.sinks.spec import open_driver_sink
from tidemill.spark.jobs import SparkRunner
from tidemill.spark.local import LocalRunner

TICDC_NS = {"narrow": 10_500, "mixed": 21_500}
WARM_UP = 25


@dataclass
class Delivery:
    """A log, a sink, and a way to run items."""

    driver: BatchDriver
    reader: LogReader

    def ends(self, batches: int) -> tuple[list[int], list[int]]:
        """Ends of WARM_UP short intervals in the first tenth of the log, and of so many longer ones in the rest."""
        start, end = self.reader.start_ts, self.reader.resolved_ts()
        tenth = (end - start) // 10
        warm_up = [start + tenth * (i + 1) // WARM_UP for i in range(WARM_UP)]
        return warm_up, [start + tenth + (end - start - tenth) * (i + 1) // batches for i in range(batches)]


def delivery(stack: ExitStack, log: Path, sink_uri: str, dispatcher: str, runner: JobRunner, folder: Path) -> Delivery:
    """Everything that a batch needs."""
    config = parse_config(f'[[sink.dispatchers]]\nmatcher = ["*.*"]\npartition = "{dispatcher}"\n')
    settings = Settings("bench", config.sink_uri(sink_uri), config, UTC)
    sink = open_driver_sink(settings.sink.text, fresh=True)
    stack.callback(sink.close)
    router = TableRouter(settings, sink.place)
    packs = PackStore(
        *(folder / "packs", settings.output, router.table, lambda t: sink.ensure_topics(set(t)), [settings.sink.topic]),
        find_limits=sink.message_limits,
    )
    reader = LogReader(log)
    upstream = LogSource(reader, load_history(reader), packs, router.ddl)
    events = SinkEvents(settings, router, packs, sink)
    return Delivery(BatchDriver("bench", upstream, events, sink, settings.sink.text, runner, Fence.at(folder)), reader)


def measure(made: Delivery, batches: int) -> dict[str, Any]:
    """Deliver the log: what warms everything up, then so many batches that count."""
    at = made.reader.start_ts
    warm_up, ends = made.ends(batches)
    for number, end in enumerate(warm_up):
        made.driver.run(number, at, end)
        at = end
    begin, clock = Cpu.now(), time.perf_counter()
    stats = deliver(made, WARM_UP, at, ends)
    wall, cpu, sums = time.perf_counter() - clock, Cpu.now().since(begin), total(stats)
    rows = max(1, sums.rows)
    each = {name: round(value * 1e9 / rows) for name, value in asdict(cpu).items()}
    steps = {name: round(getattr(sums, f"{name}_ns") / rows) for name in ("route", "encode", "deliver")}
    return {
        "rows": sums.rows,
        "rows_per_s": round(rows / wall),
        "cpu_ns_per_row": round(cpu.total * 1e9 / rows),
        "cpu_of": each,
        "wall_ns_of_steps": steps,
        "messages": sums.messages,
        "slow_rows": sums.slow_rows,
        "rows_read": sums.rows_read,
    }


def deliver(made: Delivery, number: int, at: int, ends: Sequence[int]) -> list[TaskStats]:
    """Deliver batches, the first of this number and from `at` on."""
    stats = []
    for end in ends:
        stats.append(made.driver.run(number, at, end).stats)
        number, at = number + 1, end
    return stats


def run(name: str, options: argparse.Namespace, log: Path, *, spark: bool) -> dict[str, Any]:
    """One measurement."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemill-bench-")))
        runner: JobRunner = LocalRunner()
        if spark:
            from tidemill.spark.session import start_session

            session: Any = start_session(folder / "spark.log", master=f"local[{options.tasks}]")
            stack.callback(session.stop)
            runner = SparkRunner(session.sparkContext, "bench")
        made = delivery(stack, log, options.sink, options.dispatcher, runner, folder)
        result = measure(made, options.batches)
    result = {"corpus": name, "by": "spark" if spark else "one process", **result}
    if name in TICDC_NS:
        result["times_ticdc"] = round(TICDC_NS[name] / result["cpu_ns_per_row"], 1)
    return result


def keep(result: dict[str, Any], sink: str, read_ns: float) -> None:
    """Note what a row cost, beside a read of the same log."""
    stage = f"Delivery: change log to {sink.partition('?')[0]}"
    name = f"{result['corpus']}, {result['by']}"
    note(Figure(stage, name, result["cpu_ns_per_row"], "CPU ns a row", Limit("Arrow IPC read of the log", read_ns)))
    if "times_ticdc" in result:
        note(Figure(stage, f"{name}, times TiCDC's", result["times_ticdc"], "times TiCDC's sort, mount and encode", aim=12, most=False))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.bench_pipeline", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("corpus", nargs="+", choices=["narrow", "mixed", "wide"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--tables", type=int, default=8)
    parser.add_argument("--partitions", type=int, default=4, help="of the log")
    parser.add_argument("--affinity", type=Affinity, choices=list(Affinity), default=Affinity.TABLE)
    parser.add_argument("--segment-seconds", type=float, default=30.0)
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--sink", default="blackhole:///?protocol=open-protocol&partition-num=4")
    parser.add_argument("--dispatcher", choices=["default", "table", "ts", "index-value"], default="default")
    parser.add_argument("--corpora", type=Path, help="folder of recorded corpora (NAME.parquet, NAME.tableinfo.json)")
    parser.add_argument("--only", choices=["spark", "one"])
    options = parser.parse_args(arguments)
    for name in options.corpus:
        with tempfile.TemporaryDirectory(prefix="tidemill-bench-log-") as folder:
            log = Path(folder) / "log"
            shape = Shape(
                name,
                options.rows,
                options.tables,
                options.partitions,
                options.affinity,
                options.segment_seconds,
                rate=options.rows // 300 or 1,
            )
            make_log(log, shape, options.corpora)
            read_ns = limits.arrow_read(log.glob("rows/*/*.arrow")) * 1e9 / options.rows
            for spark in (False, True):
                if options.only != ("one" if spark else "spark"):
                    result = run(name, options, log, spark=spark)
                    print(json.dumps({**result, "arrow_read_ns_per_row": round(read_ns)}), flush=True)
                    keep(result, options.sink, read_ns)


if __name__ == "__main__":
    main(sys.argv[1:])
