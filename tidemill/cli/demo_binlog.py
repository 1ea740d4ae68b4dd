"""`tidemill demo --binlog`: an embedded upstream that writes binlogs, four Pumps, a Drainer and a MariaDB, with accidents on the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from tidemill import tso
from tidemill.demo.binlog import Node, checkpoint, drainer, pump, wait_until
from tidemill.demo.session import DemoFailed, Upstream
from tidemill.playground.programs.mariadb import MariaDbServer

REFRESH_S = 0.2
SHOWN_DIFFERENCES = 20


@dataclass
class Chain:
    """Everything that runs."""

    folder: Path
    upstream: Upstream
    database: MariaDbServer
    pumps: list[Node]
    drainer: Node
    lags_s: list[float] = field(default_factory=list)

    def kill_a_pump(self) -> str:
        """kill -9 and a new start."""
        self.pumps[0].kill()
        self.pumps[0].start()
        return "Pump pump1 was killed (SIGKILL) and started again"

    def pause_a_pump(self) -> str:
        """SIGTERM and a new start."""
        self.pumps[1].stop()
        self.pumps[1].start()
        return "Pump pump2 was paused (SIGTERM) and started again"

    def add_a_pump(self) -> str:
        """A Pump joins."""
        self.pumps[-1].start()
        return f"Pump {self.pumps[-1].node_id} joined"

    def kill_the_drainer(self) -> str:
        """kill -9 and a new start."""
        self.drainer.kill()
        self.drainer.start()
        return "the Drainer was killed (SIGKILL) and started again"

    def kill_the_database(self) -> str:
        """kill -9 and a new start."""
        self.database.kill()
        self.database.start()
        return "MariaDB was killed (SIGKILL) and started again"


ACCIDENTS: tuple[Callable[[Chain], str], ...] = (
    Chain.kill_a_pump,
    Chain.add_a_pump,
    Chain.kill_the_drainer,
    Chain.pause_a_pump,
    Chain.kill_the_database,
)


def run(folder: Path, console: Console, *, seconds: float, rate: float, seed: int, stores: int) -> bool:
    """The demo. Returns whether downstream equals upstream. Raises DemoFailed when a part of it ends."""
    with ExitStack() as stack:
        console.print("Starting a MariaDB and the upstream …")
        database = stack.enter_context(MariaDbServer())
        options = ("--binlog", "--stores", str(stores), "--resolved-interval", "0.5")
        upstream = stack.enter_context(Upstream(folder, seed=seed, rate=rate, options=options))
        upstream.call("pause")
        console.print(f"Upstream: PD at {upstream.pd}. It writes nothing before it has a Pump.")
        pumps = [pump(f"pump{n}", folder, upstream) for n in (1, 2, 3, 4)]
        for node in pumps[:3]:
            stack.enter_context(node)
        stack.push(pumps[3])
        chain = Chain(folder, upstream, database, pumps, stack.enter_context(drainer(folder, upstream, database)))
        _wait_for_tables(chain)
        console.print("Three Pumps and a Drainer run; the workload begins.")
        upstream.call("resume")
        _watch(chain, console, seconds)
        end_ts = upstream.rest()
        console.print("The workload rests; waiting until all of it is in the database …")
        wait_until(chain.drainer, database, end_ts)
        return _compare(chain, end_ts, console)


def _wait_for_tables(chain: Chain) -> None:
    """Until the upstream has its tables and a checkpoint is in the database."""
    while checkpoint(chain.database) == 0:
        for node in (*chain.pumps[:3], chain.drainer):
            node.check()
        time.sleep(REFRESH_S)


def _watch(chain: Chain, console: Console, seconds: float) -> None:
    began = time.monotonic()
    due = [(began + seconds * (n + 1) / (len(ACCIDENTS) + 1), accident) for n, accident in enumerate(ACCIDENTS)]
    while (now := time.monotonic()) < began + seconds:
        chain.drainer.check()
        if due and now >= due[0][0]:
            console.print(f"  {now - began:5.1f} s  {due.pop(0)[1](chain)}")
        chain.lags_s.append(max(0.0, time.time() - tso.physical_ms(checkpoint(chain.database)) / 1000))
        time.sleep(REFRESH_S)


def _compare(chain: Chain, end_ts: int, console: Console) -> bool:
    from tidemill.diff.job import Place
    from tidemill.diff.moment import choose
    from tidemill.diff.repair import shown
    from tidemill.diff.session import Comparison, Options
    from tidemill.diff.upstream import Wish, of_cluster
    from tidemill.rules.table_filter import TableFilter

    wish = Wish(TableFilter(["*.*"]))
    place, ts = choose(Place(uri=chain.database.uri), str(end_ts), None)
    console.print("tidemill diff: reading the upstream's tables …")
    found = of_cluster(chain.upstream.pd, (None, None, None), ts, wish)
    report = Comparison(found, place, wish, Options(), lambda what, items: lambda done: None).run()
    stats = chain.upstream.stats()
    if not stats["rows_written"]:
        raise DemoFailed("the upstream wrote nothing")
    lags = sorted(chain.lags_s)
    work = stats["workload"] or {}
    console.print(f"upstream wrote {stats['rows_written']:,} rows in {stats['transactions']:,} transactions, {work.get('ddls', 0)} DDLs")
    console.print(f"lag: median {lags[len(lags) // 2]:.1f} s, longest {lags[-1]:.1f} s, accidents included")
    console.print(f"compared {len(report.tables)} tables, {len(report.differences)} differences")
    problems = [f"{one.name} {one.problem}" for one in report.tables if one.problem]
    problems += [shown(report.compared[one.table], one) for one in report.differences]
    for text in problems[:SHOWN_DIFFERENCES]:
        console.print(f"  [red]{text}[/]")
    return not problems and bool(report.tables)
