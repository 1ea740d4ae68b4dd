"""What changefeeds of a server cost, and how soon one begins: `python -m bench.bench_feeds [idle] [busy] [create] [--feeds 200]`.

idle    A delivery host runs one changefeed, then 1 + FEEDS, over a log whose resolved ts moves each second and that has no row: each
        changefeed sends a resolved event a second. The difference of CPU (user + system) and of private memory, divided by FEEDS, is what
        one of them costs.
busy    The same with a table for each changefeed, which gets RATE rows a second, and with what Java and tasks take. Also how far
        changefeeds are behind the log.
create  A server, and a playground that writes rows: the seconds from `create` until the first row is in the sink, of the first changefeed,
        which begins the log, and of those after it.
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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO

import psutil

from bench.report.figures import Figure, note
from bench.usage import TreeUsage
from tests.support.changelog.logs import Change, batch_of, order, put, read_changes
from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.runs import await_that
from tests.support.server.servers import Server
from tidemill.changelog.log_format import HEAD, folders
from tidemill.changelog.reader import LogReader
from tidemill.changelog.writer import LogWriter
from tidemill.demo.session import Upstream
from tidemill.process.children import environment, program
from tidemill.process.orders import begin, to_plain
from tidemill.server.feeds import FeedFiles
from tidemill.server.host.messages import Figures, HostOrder, command, figures_in, parse
from tidemill.server.settings import FeedSettings
from tidemill.tso import compose, physical_ms

STAGE = "Changefeeds of one server"
PARTITIONS = 4
MOVES_S = 1.0
SETTLED_S = 40.0
"""For so long a host runs before it is measured: it has started Spark, and its changefeeds have begun."""
FIRST_HANDLE = 1000


@contextmanager
def moving(move: Callable[[], None]) -> Iterator[None]:
    """Call `move` each second."""
    over = threading.Event()

    def again() -> None:
        due = time.monotonic()
        while not over.wait(max(0.0, due - time.monotonic())):
            move()
            due += MOVES_S

    thread = threading.Thread(target=again)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Heads:
    """Moves all heads of a log that gets no rows."""

    def __init__(self, log: str) -> None:
        self._log, self._reader = log, LogReader(log)
        self._at = self._reader.resolved_ts()

    def __call__(self) -> None:
        self._at += compose(int(1000 * MOVES_S))
        for folder in folders(self._reader.partitions):
            file = Path(self._log) / folder / HEAD
            draft = file.with_suffix(".draft")
            draft.write_text(json.dumps({"resolved_ts": self._at}))
            draft.replace(file)


class Rows:
    """Writes rows of each table into a log, and moves its heads."""

    def __init__(self, log: str, rate: int) -> None:
        self._rate, self._handle = rate, FIRST_HANDLE
        self._samples = [{one.table_id: one for one in read_changes(log, number)} for number in range(PARTITIONS)]
        self._writer = LogWriter.open(log)
        self._at = self._writer.resolved_ts

    def __call__(self) -> None:
        self._at += compose(int(1000 * MOVES_S))
        self._writer.schema.set_head(self._at)
        for number, tables in enumerate(self._samples):
            made = sorted(self._made(tables.values()), key=order)
            partition = self._writer.partition(number)
            if made:
                partition.publish(self._at, [batch_of(made)])
            else:
                partition.set_head(self._at)
        self._handle += self._rate

    def _made(self, tables: Iterable[Change]) -> Iterator[Change]:
        for one in tables:
            for number in range(self._rate):
                yield put(one.table_id, self._handle + number, self._at - number, one.value or b"")

    def close(self) -> None:
        self._writer.close()


@dataclass(frozen=True, slots=True)
class Seen:
    """A host over some seconds: shares of a core of itself and of all below it, private MiB of itself, rows a second of all changefeeds,
    how many seconds of the log each changefeed is behind, and the load of the machine."""

    own: float
    whole: float
    memory: float
    rows: float
    behind: list[float]
    load: float


def measured(folder: Path, log: str, feeds: int, seconds: float, rules: Callable[[int], list[str]]) -> Seen:
    """A host with so many changefeeds. `rules`: the tables of each."""
    data = folder / f"data-{feeds}"
    reader = LogReader(log)
    files = FeedFiles(data, log)
    term, _ = files.take(1, "bench")
    names = [f"feed-{number}" for number in range(feeds)]
    started = list[FeedSettings]()
    for number, name in enumerate(names):
        config = {"filter": {"rules": rules(number)}}
        started.append(FeedSettings(name, "blackhole://", reader.start_ts, time.time(), "bench", reader.identity.cluster_id, config=config))
        files.create(started[-1])
    argv = program("tidemill.server.host.process")
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        begun = 0
        host.stdin.write(begin(HostOrder(log, data, term=term, log_level="error")))
        for feed in started:
            host.stdin.write(command("start", feed=feed.changefeed, run=1, retries=False, settings=to_plain(feed)))
        host.stdin.flush()
        while begun < feeds:
            begun += parse(host.stdout.readline()).get("is") == "begun"
        told: dict[str, Figures] = {}
        threading.Thread(target=_follow, args=(host.stdout, told), daemon=True).start()
        time.sleep(SETTLED_S)
        process = psutil.Process(host.pid)
        with TreeUsage(host.pid) as usage:
            time.sleep(1.0)
            tree, before, at = usage.cpu().total, process.cpu_times(), time.monotonic()
            rows = sum(one.rows for one in told.values())
            time.sleep(seconds)
            after, passed = process.cpu_times(), time.monotonic() - at
            whole, rows = (usage.cpu().total - tree) / passed, sum(one.rows for one in told.values()) - rows
        memory = process.memory_full_info().uss / (1 << 20)
        head = physical_ms(reader.resolved_ts())
        behind = sorted((head - physical_ms(one.checkpoint_ts)) / 1000 for one in told.values())
        host.terminate()
        host.wait(60)
    own = (after.user + after.system - before.user - before.system) / passed
    return Seen(own, whole, memory, rows / passed, behind, os.getloadavg()[0])


def _follow(reports: IO[bytes], told: dict[str, Figures]) -> None:
    for line in reports:
        told.update(figures_in(parse(line)))


def create_table(number: int) -> str:
    columns = ", ".join(f"c{column} VARCHAR(20)" for column in range(10))
    return f"CREATE TABLE t{number} (id INT PRIMARY KEY, {columns})"


def tell(one: Seen, many: Seen, feeds: int, what: str) -> None:
    for count, seen in ((1, one), (1 + feeds, many)):
        print(
            f"a host with {count}: {100 * seen.own:.2f} % of a core, with Java and tasks {100 * seen.whole:.2f} %, {seen.memory:.0f} MiB; "
            f"{seen.rows:.0f} rows/s, behind {median(seen.behind):.1f} s, at most {seen.behind[-1]:.1f} s; load {seen.load:.1f}",
            flush=True,
        )
    own, whole, memory = ((getattr(many, name) - getattr(one, name)) / feeds for name in ("own", "whole", "memory"))
    is_idle = "idle" in what
    note(Figure(STAGE, f"{what}: CPU that it adds", 100 * own, "% of a core", aim=0.05 if is_idle else None))
    note(Figure(STAGE, f"{what}: memory that it adds", memory, "MiB", aim=1 if is_idle else None))
    print(f"{what} adds {100 * own:.3f} % of a core, with Java and tasks {100 * whole:.3f} %, and {memory:.2f} MiB", flush=True)


def idle(folder: Path, args: argparse.Namespace) -> None:
    log = SqlLog(*(create_table(number) for number in range(args.tables))).write(folder / "log", partitions=PARTITIONS)
    with moving(Heads(log)):
        one, many = (measured(folder, log, feeds, args.seconds, lambda _: ["*.*"]) for feeds in (1, 1 + args.feeds))
    tell(one, many, args.feeds, f"an idle changefeed ({args.tables} tables)")


def busy(folder: Path, args: argparse.Namespace) -> None:
    count = 1 + args.feeds
    sql = SqlLog(*(create_table(number) for number in range(count)))
    values = ", ".join(["'some text of it'"] * 10)
    sql.run(*(f"INSERT INTO t{number} VALUES (1, {values})" for number in range(count)))
    log = sql.write(folder / "log", partitions=PARTITIONS)
    rows = Rows(log, args.rate)
    with moving(rows):
        one, many = (measured(folder, log, feeds, args.seconds, lambda number: [f"app.t{number}"]) for feeds in (1, count))
    rows.close()
    tell(one, many, args.feeds, f"a changefeed of {args.rate} rows/s")


def create(folder: Path, args: argparse.Namespace) -> None:
    with Upstream(folder, seed=1, rate=20, options=("--resolved-interval", "0.3")) as upstream, Server(folder, upstream.pd) as server:
        took = []
        for number in range(args.creates):
            out = folder / f"out{number}.jsonl"
            began = time.monotonic()
            answer = server.create(f"c{number}", f"messages://{out}?protocol=canal-json&content-compatible=false")
            answered = time.monotonic() - began
            assert answer.get("id"), answer
            await_that(lambda out=out: has_row(out), "a row is there")  # type: ignore[misc]
            took.append(time.monotonic() - began)
            print(
                f"create {number + 1}: answered after {answered:.2f} s, the first row after {took[-1]:.2f} s; load {os.getloadavg()[0]:.1f}"
            )
        note(Figure(STAGE, "create to the first row, with a new log", took[0], "s"))
        note(Figure(STAGE, "create to the first row, then", median(took[1:]), "s"))
        print(f"from create to the first row: {took[0]:.1f} s with a new log, then {median(took[1:]):.1f} s (median of {len(took) - 1})")


def has_row(out: Path) -> bool:
    """Whether a message of rows is there: those of Canal-JSON without the extension are rows and DDLs, and there are no DDLs now."""
    return out.exists() and out.stat().st_size > 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=("idle", "busy", "create"), default=["idle"])
    parser.add_argument("--feeds", type=int, default=200)
    parser.add_argument("--tables", type=int, default=10)
    parser.add_argument("--rate", type=int, default=10, help="rows a second of each changefeed that is busy")
    parser.add_argument("--creates", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=30.0)
    args = parser.parse_args()
    for what in args.what:
        with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as name:
            {"idle": idle, "busy": busy, "create": create}[what](Path(name), args)


if __name__ == "__main__":
    sys.exit(main())
