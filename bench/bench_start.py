"""What a `tidemill run` costs before it delivers and while nothing happens: `python -m bench.bench_start [--seconds 120] [--sink URI]`.

The upstream is a playground, a process of its own that is not counted. The start is counted from the start of the process until the first
row is delivered and its checkpoint is written. Then the run settles, and the idle time begins: the upstream's resolved ts goes on and no
row comes. CPU is user + system of all processes of the run; memory is PSS, which divides shared pages among those that have them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import psutil

from bench.report.figures import Figure, note
from bench.usage import Cpu, TreeUsage, kind_of
from tidemill.demo.session import Delivery, Upstream

BLACKHOLE = "blackhole:///?protocol=open-protocol"
SETTLED_S = 30.0
"""Seconds from the first delivery to the idle time: Spark is up by then, and what it did at the start is over."""
LOOK_S = 0.02
STAGE = "The start, and the idle time"
MIB = 1 << 20


def memory(pid: int) -> dict[str, float]:
    """PSS of a process and of all that it started, in MiB, by kind."""
    found: dict[str, float] = {}
    root = psutil.Process(pid)
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):  # it has ended
            kind = kind_of(process)
            found[kind] = found.get(kind, 0.0) + process.memory_full_info().pss / MIB
    return found


def of_kinds(figures: dict[str, float], unit: str) -> str:
    """Each figure with its kind."""
    return ", ".join(
        f"{kind} {figure:.2f} {unit}" if figure < 10 else f"{kind} {figure:.0f} {unit}" for kind, figure in sorted(figures.items())
    )


def measured(folder: Path, sink: str, seconds: float, settled_s: float) -> None:
    """Start a run, and print what it took until its first row and what it takes a second while nothing happens."""
    with ExitStack() as stack:
        upstream = stack.enter_context(Upstream(folder, options=("--workload", "none", "--resolved-interval", "1")))
        upstream.call("sql", text="CREATE DATABASE bench; CREATE TABLE bench.t (id BIGINT PRIMARY KEY); INSERT INTO bench.t VALUES (1)")
        began = time.monotonic()
        delivery = stack.enter_context(Delivery(folder, upstream, sink, start_ts=upstream.began_ts))
        assert delivery.process is not None
        pid = delivery.process.pid
        usage = stack.enter_context(TreeUsage(pid))
        while not delivery.feed_status().get("rows"):
            delivery.check()
            time.sleep(LOOK_S)
        took, spent = time.monotonic() - began, usage.cpu()
        print(
            f"load {os.getloadavg()[0]:.1f}; until the first row is delivered: {spent.total:.1f} CPU s ({spent}), {took:.1f} s", flush=True
        )
        note(Figure(STAGE, "start until the first row: CPU", spent.total, "CPU s", aim=5))
        note(Figure(STAGE, "start until the first row", took, "s", aim=4))
        time.sleep(settled_s)
        spent = usage.cpu()
        print(f"after {settled_s:.0f} s more: {spent.total:.1f} CPU s ({spent})", flush=True)
        before, at = usage.cpu(), time.monotonic()
        time.sleep(seconds)
        passed = time.monotonic() - at
        idle = Cpu({kind: 100 * spent / passed for kind, spent in usage.cpu().minus(before).by_kind.items()})
        held = memory(pid)
        print(f"idle for {passed:.0f} s: {idle.total:.2f} % of a core ({of_kinds(idle.by_kind, '%')}), ", end="")
        print(f"{sum(held.values()):.0f} MiB ({of_kinds(held, 'MiB')}); load {os.getloadavg()[0]:.1f}", flush=True)
        note(Figure(STAGE, "idle, one changefeed: CPU", idle.total, "% of a core", aim=2))
        note(Figure(STAGE, "idle, one changefeed: memory", sum(held.values()), "MiB", aim=700))
        delivery.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0, help="how long to watch it idle")
    parser.add_argument("--settled", type=float, default=SETTLED_S)
    parser.add_argument("--sink", default=BLACKHOLE)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as name:
        measured(Path(name), args.sink, args.seconds, args.settled)


if __name__ == "__main__":
    main()
