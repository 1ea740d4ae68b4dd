"""How the cost of a row grows: with rows, tables, partitions of the log and of the topic. CPU a row, from a log to the black hole.

    python -m bench.bench_growth [--most 100000000] [--rows 1000000]

One curve each: rows up to --most, and with --rows rows, tables up to 10,000, partitions of the log and of the topic up to 64. In this
process, by the code that Spark's tasks run; narrow rows as Open Protocol. A log of more than ten million rows is delivered while it grows,
and what was delivered is removed, so that it needs no more disk than ten million rows do.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from bench.bench_pipeline import deliver, delivery, measure
from bench.make_log import LogMaker, Shape
from bench.processes import Cpu
from bench.report.figures import Figure, note
from tidemill.changelog.log_format import Affinity
from tidemill.delivery.work_item import total
from tidemill.spark.local import LocalRunner
from tidemill.tso import LOGICAL_BITS

BATCHES = 5
PIECE_ROWS, PIECE_S = 10_000_000, 300
"""Rows that are on disk at a time, and the seconds of commit time that they span."""
UNIT = "CPU ns a row"


def cost(shape: Shape, targets: int) -> float:
    """CPU ns a row of one log into so many partitions of a topic."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemill-bench-")))
        maker = stack.enter_context(closing(LogMaker(folder / "log", shape)))
        piece = min(maker.end - maker.at, PIECE_S * 1000 << LOGICAL_BITS)
        maker.advance(maker.at + piece)
        sink = f"blackhole:///?protocol=open-protocol&partition-num={targets}"
        made = delivery(stack, folder / "log", sink, "index-value", LocalRunner(), folder)
        found = measure(made, BATCHES)
        rows, spent, number = found["rows"], found["rows"] * found["cpu_ns_per_row"], 1000
        while maker.at < maker.end:
            at = maker.at
            maker.drop(at)
            maker.advance(at + piece)
            begin = Cpu.now()
            stats = deliver(made, number, at, [at + (maker.at - at) * (i + 1) // BATCHES for i in range(BATCHES)])
            rows, spent = rows + total(stats).rows, spent + Cpu.now().since(begin).total * 1e9
            number += BATCHES
    return float(spent / rows)


def shape_of(rows: int, tables: int = 8, partitions: int = 4) -> Shape:
    """Narrow rows, in segments of half a minute. Up to ten million rows lie in five minutes, more in as many times that."""
    return Shape("narrow", rows, tables, partitions, Affinity.KEY, 30.0, rate=max(min(rows, PIECE_ROWS) // PIECE_S, 1))


def grown(name: str, axis: str, at: int, shape: Shape, targets: int = 4) -> None:
    """Measure one point of a curve."""
    seen = cost(shape, targets)
    print(f"{axis:24} {at:>12,}: {seen:6.0f} ns", flush=True)
    note(Figure("Growth", name, seen, UNIT, axis=axis, at=at))


def powers(first: int, last: int, factor: int) -> Sequence[int]:
    """first, first × factor, … up to last."""
    found = [first]
    while found[-1] * factor <= last:
        found.append(found[-1] * factor)
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.bench_growth", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--most", type=int, default=100_000_000, help="rows of the largest log")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the other logs")
    options = parser.parse_args(arguments)
    rows = min(options.rows, options.most)
    for count in powers(100_000, options.most, 10):
        grown("8 tables, 4 partitions", "rows", count, shape_of(count))
    for count in powers(1, min(10_000, rows // 100), 10):
        grown(f"{rows:,} rows", "tables", count, shape_of(rows, tables=count))
    for count in powers(1, 64, 4):
        grown(f"{rows:,} rows", "partitions of the log", count, shape_of(rows, partitions=count))
    for count in powers(1, 64, 4):
        grown(f"{rows:,} rows", "partitions of the topic", count, shape_of(rows), targets=count)


if __name__ == "__main__":
    main(sys.argv[1:])
