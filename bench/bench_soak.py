"""Whether memory grows while a run lives: `python -m bench.bench_soak [--minutes 60] [--workload soak] [--every 30] [--sink URI]`.

A `tidemill run` of a playground whose workload does everything that may happen to tables (DDL, splits, transactions whose client dies,
large ones), in a process of its own that is not counted. Each EVERY seconds the private memory (Pss_Anon) of the run's processes is looked
at, by kind. The first tenth of the time is not judged: programs load, Spark starts, buffers fill. Told is the curve, and how the mean
of the last third compares with that of the third before it: 1.00 is flat.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import mean

import psutil

from bench.report.figures import Figure, note
from bench.usage import kind_of
from tidemill.demo.session import Delivery, Upstream

STAGE = "Memory of a run while time passes"
SINK = "blackhole:///?protocol=canal-json"
MOST = 1.05
"""How many times the middle third's memory the last third's may be."""


def private(pid: int) -> float:
    """MiB that belong to a process alone, or its share of what is shared; no pages of files."""
    found = re.search(r"Pss_Anon:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text())
    return int(found[1]) / 1024 if found else 0.0


def by_kind(root: psutil.Process) -> dict[str, float]:
    """MiB of a process and of all that it started, by kind."""
    seen: dict[str, float] = {}
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.Error, OSError):  # it has ended
            seen[kind_of(process)] = seen.get(kind_of(process), 0.0) + private(process.pid)
    return seen


def growth(curve: Sequence[float]) -> float:
    """The mean of the last third of a curve, times that of the third before it; the first tenth does not count."""
    judged = curve[len(curve) // 10 :]
    third = max(len(judged) // 3, 1)
    return mean(judged[-third:]) / mean(judged[-2 * third : -third] or judged)


def watch(folder: Path, workload: str, sink: str, minutes: float, every: float) -> None:
    """Run for so many minutes, and tell what was seen."""
    curves: dict[str, list[float]] = {}
    with ExitStack() as stack:
        upstream = stack.enter_context(Upstream(folder, options=("--workload", workload, "--resolved-interval", "1")))
        delivery = stack.enter_context(Delivery(folder, upstream, sink, start_ts=upstream.began_ts))
        assert delivery.process is not None
        root, began = psutil.Process(delivery.process.pid), time.monotonic()
        while (passed := time.monotonic() - began) < 60 * minutes:
            delivery.check()
            seen = by_kind(root)
            seen["all"] = sum(seen.values())
            for kind, mib in seen.items():
                curves.setdefault(kind, []).append(mib)
                note(Figure(STAGE, kind, mib, "MiB", axis="minutes", at=round(passed / 60, 1)))
            print(f"{passed / 60:6.1f} min: " + ", ".join(f"{kind} {mib:.0f}" for kind, mib in sorted(seen.items())) + " MiB", flush=True)
            time.sleep(every)
        rows = int(delivery.feed_status().get("rows", 0))
        delivery.stop()
    print(f"{rows:,} rows in {minutes:.0f} minutes")
    for kind, curve in sorted(curves.items()):
        print(f"{kind:12} {mean(curve):6.0f} MiB, the last third {growth(curve):.3f} times the middle one")
    note(Figure(STAGE, "all, the last third", growth(curves["all"]), "times the middle third", aim=MOST))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=30.0, help="seconds between two looks")
    parser.add_argument("--workload", default="soak")
    parser.add_argument("--sink", default=SINK)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as name:
        watch(Path(name), args.workload, args.sink, args.minutes, args.every)


if __name__ == "__main__":
    main()
