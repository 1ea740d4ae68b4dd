"""What idle changefeeds of a server cost: `python -m bench.bench_feeds [--feeds 200] [--tables 10] [--seconds 30]`.

A delivery host runs one changefeed, then 1 + FEEDS, over a log whose resolved ts moves each second and that has no row: each changefeed
sends a resolved event a second. The difference of CPU (user + system) and of private memory, divided by FEEDS, is what one of them costs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.support.changelog.sqllogs import SqlLog
from tidemill.changefeed.runner import LOG_VARIABLE
from tidemill.changelog.log_format import HEAD, folders
from tidemill.changelog.reader import LogReader
from tidemill.process.children import environment, python
from tidemill.server.feeds import FeedFiles
from tidemill.server.host.messages import command, parse
from tidemill.server.settings import FeedSettings
from tidemill.tso import compose

PARTITIONS = 4
MOVES_S = 1.0
SETTLED_S = 40.0
"""For so long a host runs before it is measured: it has started Spark, and its changefeeds have begun."""


@contextmanager
def moving(log: str) -> Iterator[None]:
    """Move all heads of a log each second."""
    reader, over = LogReader(log), threading.Event()
    at = reader.resolved_ts()

    def move() -> None:
        nonlocal at
        while not over.wait(MOVES_S):
            at += compose(int(1000 * MOVES_S))
            for folder in folders(reader.partitions):
                file = Path(log) / folder / HEAD
                draft = file.with_suffix(".draft")
                draft.write_text(json.dumps({"resolved_ts": at}))
                draft.replace(file)

    thread = threading.Thread(target=move)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def measured(folder: Path, log: str, feeds: int, seconds: float) -> tuple[float, float]:
    """CPU seconds a second, and private MiB, of a host with so many changefeeds."""
    data = folder / f"data-{feeds}"
    reader = LogReader(log)
    files = FeedFiles(data, log)
    names = [f"feed-{number}" for number in range(feeds)]
    for name in names:
        files.save(FeedSettings(name, "blackhole://", reader.start_ts, 0.0, "bench", reader.identity.cluster_id), reader.location)
    argv = python("tidemill.server.host.process", "--data-dir", str(data), "--log-level", "error")
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment({LOG_VARIABLE: log})) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        begun = 0
        for name in names:
            host.stdin.write(command("start", feed=name, run=1, retries=False))
        host.stdin.flush()
        reports = iter(host.stdout)
        while begun < feeds:
            begun += parse(next(reports)).get("is") == "begun"
        threading.Thread(target=lambda: [None for _ in reports], daemon=True).start()
        time.sleep(SETTLED_S)
        process = psutil.Process(host.pid)
        before, at = process.cpu_times(), time.monotonic()
        time.sleep(seconds)
        after, passed = process.cpu_times(), time.monotonic() - at
        memory = process.memory_full_info().uss / (1 << 20)
        host.terminate()
        host.wait(60)
    return (after.user + after.system - before.user - before.system) / passed, memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--feeds", type=int, default=200)
    parser.add_argument("--tables", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30.0)
    args = parser.parse_args()
    columns = ", ".join(f"c{number} VARCHAR(20)" for number in range(10))
    sql = SqlLog(*(f"CREATE TABLE t{number} (id INT PRIMARY KEY, {columns})" for number in range(args.tables)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = sql.write(folder / "log", partitions=PARTITIONS)
        with moving(log):
            one, many = (measured(folder, log, feeds, args.seconds) for feeds in (1, 1 + args.feeds))
    cpu, memory = (many[0] - one[0]) / args.feeds, (many[1] - one[1]) / args.feeds
    print(f"load {os.getloadavg()[0]:.1f}; a host with 1 changefeed: {100 * one[0]:.2f} % of a core, {one[1]:.0f} MiB")
    print(f"a host with {1 + args.feeds}: {100 * many[0]:.2f} % of a core, {many[1]:.0f} MiB")
    print(f"an idle changefeed adds {100 * cpu:.3f} % of a core and {memory:.2f} MiB ({args.tables} tables)")


if __name__ == "__main__":
    sys.exit(main())
