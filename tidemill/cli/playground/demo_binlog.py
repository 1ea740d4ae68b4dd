"""`tidemill demo --binlog`: an embedded upstream that writes binlogs, four Pumps, a Drainer and a MariaDB, with accidents on the way."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from tidemill import tso
from tidemill.demo.binlog import Accident, Chain
from tidemill.demo.session import DemoFailed, Upstream
from tidemill.playground.programs.mariadb import MariaDbServer

REFRESH_S = 0.2
SHOWN_DIFFERENCES = 20
ACCIDENTS = (Accident.PUMP_KILLED, Accident.PUMP_JOINS, Accident.DRAINER_KILLED, Accident.PUMP_PAUSED, Accident.DATABASE_KILLED)


def run(folder: Path, console: Console, *, seconds: float, rate: float, seed: int, stores: int) -> bool:
    """The demo. Returns whether downstream equals upstream. Raises DemoFailed when a part of it ends."""
    with ExitStack() as stack:
        console.print("Starting a MariaDB and the upstream …")
        database = stack.enter_context(MariaDbServer())
        options = ("--binlog", "--stores", str(stores), "--resolved-interval", "0.5")
        upstream = stack.enter_context(Upstream(folder, seed=seed, rate=rate, options=options))
        upstream.call("pause")
        console.print(f"Upstream: PD at {upstream.pd}. It writes nothing before it has a Pump.")
        chain = stack.enter_context(Chain(folder, upstream, database))
        chain.wait_for_tables()
        console.print("Three Pumps and a Drainer run; the workload begins.")
        upstream.call("resume")
        lags = _watch(chain, console, seconds)
        end_ts = upstream.rest()
        console.print("The workload rests; waiting until all of it is in the database …")
        chain.wait_until(end_ts)
        return _compare(chain, end_ts, sorted(lags), console)


def _watch(chain: Chain, console: Console, seconds: float) -> list[float]:
    """Let accidents happen while the workload runs. Returns how far the database was behind, in seconds, now and then."""
    lags: list[float] = []
    began = time.monotonic()
    due = [(began + seconds * (n + 1) / (len(ACCIDENTS) + 1), accident) for n, accident in enumerate(ACCIDENTS)]
    while (now := time.monotonic()) < began + seconds:
        chain.check()
        if due and now >= due[0][0]:
            console.print(f"  {now - began:5.1f} s  {chain.strike(due.pop(0)[1])}")
        lags.append(max(0.0, time.time() - tso.physical_ms(chain.checkpoint()) / 1000))
        time.sleep(REFRESH_S)
    return lags


def _compare(chain: Chain, end_ts: int, lags: list[float], console: Console) -> bool:
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
    work = stats["workload"] or {}
    keys = f"{stats['rows_written']:,} keys (of rows, indexes and schemas)"
    console.print(f"upstream wrote {keys} in {stats['transactions']:,} transactions, {work.get('ddls', 0)} DDLs")
    console.print(f"lag: median {lags[len(lags) // 2]:.1f} s, longest {lags[-1]:.1f} s, accidents included")
    console.print(f"compared {len(report.tables)} tables, {len(report.differences)} differences")
    problems = [f"{one.name} {one.problem}" for one in report.tables if one.problem]
    problems += [shown(report.compared[one.table], one) for one in report.differences]
    for text in problems[:SHOWN_DIFFERENCES]:
        console.print(f"  [red]{text}[/]")
    return not problems and bool(report.tables)
