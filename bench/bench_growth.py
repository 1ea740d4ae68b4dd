"""How the cost of a row grows: with rows, tables, partitions of the log and of the topic. CPU a row, from a log to the black hole.

    python -m bench.bench_growth [--most 10000000] [--rows 1000000]

One curve each: rows up to --most, and with --rows rows, tables up to 10,000, partitions of the log and of the topic up to 64. In this
process, by the code that Spark's tasks run; narrow rows as Open Protocol.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.bench_pipeline import delivery, measure
from bench.make_log import Shape, make_log
from bench.report.figures import Figure, note
from tidemill.changelog.log_format import Affinity
from tidemill.spark.local import LocalRunner

BATCHES = 5
UNIT = "CPU ns a row"


def cost(shape: Shape, targets: int) -> float:
    """CPU ns a row of one log into so many partitions of a topic."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemill-bench-")))
        make_log(folder / "log", shape)
        sink = f"blackhole:///?protocol=open-protocol&partition-num={targets}"
        found = measure(delivery(stack, folder / "log", sink, "index-value", LocalRunner(), folder), BATCHES)
    return float(found["cpu_ns_per_row"])


def shape_of(rows: int, tables: int = 8, partitions: int = 4) -> Shape:
    """Narrow rows over five minutes of commit time, in segments of half a minute."""
    return Shape("narrow", rows, tables, partitions, Affinity.KEY, 30.0, rate=max(rows // 300, 1))


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
    parser.add_argument("--most", type=int, default=10_000_000, help="rows of the largest log")
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
