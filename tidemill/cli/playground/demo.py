"""`tidemill demo`: everything on the embedded upstream, and a comparison of what was delivered with the upstream's tables."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tidemill import tso
from tidemill.cli.playground.next_steps import PAGE, next_commands, program
from tidemill.demo.session import Delivery, DemoFailed, Upstream, tables_of
from tidemill.errors import ConfigError
from tidemill.extras import demand
from tidemill.process.ports import free_ports

if TYPE_CHECKING:
    from tidemill.demo.canal import JavaReader
    from tidemill.demo.delivered import Delivered
    from tidemill.protocols.canal.events import Entry

REFRESH_S = 0.5
SHOWN_DIFFERENCES = 20
TOPIC = "tidemill-demo"
DESTINATION = "demo"


@dataclass(frozen=True)
class Options:
    """What the demo was asked for."""

    seconds: float
    rate: float
    seed: int
    stores: int
    partitions: int
    kafka: bool
    mysql: bool
    canal: bool
    folder: Path


@dataclass
class Outcome:
    """What happened, for the summary."""

    seconds: float = 0.0
    rate: float = 0.0
    upstream: dict[str, Any] | None = None
    written: Mapping[str, int] = field(default_factory=dict)  # by the upstream's store: see playground/store/written.py
    feed: dict[str, Any] | None = None
    lags_s: list[float] | None = None
    rows: int = 0
    split_updates: int | None = None  # None: messages were not looked at
    repeats: int = 0
    messages: int = 0
    ddls: int = 0
    tables: int = 0
    problems: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        return not self.problems and not self.differences and self.rows > 0

    @property
    def expected(self) -> int | None:
        """How many row events the upstream's changes make; None if that is not known."""
        return None if self.split_updates is None else self.written["row_changes"] + self.split_updates


def command(
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="How long the upstream's workload runs.")] = 20.0,
    rate: Annotated[float, typer.Option("--rate", min=0.1, help="Transactions a second.")] = 100.0,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the workload: the same seed writes the same changes.")] = 1,
    stores: Annotated[int, typer.Option("--stores", min=1, help="TiKV stores of the upstream.")] = 2,
    partitions: Annotated[int, typer.Option("--partitions", min=1, help="Partitions of the topic.")] = 3,
    kafka: Annotated[bool, typer.Option("--kafka", help="Deliver into a real Kafka broker, instead of files.")] = False,
    mysql: Annotated[bool, typer.Option("--mysql", help="Deliver into a real MariaDB, and compare by `tidemill diff`.")] = False,
    canal: Annotated[
        bool, typer.Option("--canal", help="Serve the changes to Canal's clients, and read them with Canal's own Java client.")
    ] = False,
    binlog: Annotated[
        bool, typer.Option("--binlog", help="By TiDB-Binlog: Pumps and a Drainer into a real MariaDB, some killed on the way.")
    ] = False,
    folder: Annotated[Path | None, typer.Option("--dir", help="Keep log, state and output here. Default: a temporary folder.")] = None,
) -> None:
    """Capture an embedded TiDB upstream, deliver its changes, and compare what was delivered with its tables.

    Starts a playground with a small random workload (all types, transactions, DDL, region splits), captures it, delivers its changes
    through Spark, applies them in order, and compares the result with the upstream's tables. Ends with 0 only if they are equal.
    """
    if kafka + mysql + canal + binlog > 1:
        raise ConfigError("give one of --kafka, --mysql, --canal and --binlog")
    demand("playground")
    for asked, name in ((kafka, "kafka"), (mysql or binlog, "mysql"), (binlog, "binlog")):
        if asked:
            demand(name)
    console = Console(highlight=False, soft_wrap=True)
    place = folder or Path(tempfile.mkdtemp(prefix="tidemill-demo-"))
    place.mkdir(parents=True, exist_ok=True)
    if any(place.iterdir()):
        raise DemoFailed(f"{place} is not empty", hint="Give --dir a new folder: a demo begins from nothing.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # leaves no process behind
    options = Options(seconds, rate, seed, stores, partitions, kafka, mysql, canal, place)
    console.print(f"Everything of this demo lies in {place}" + ("" if folder else ", and is deleted if all is well; --dir DIR keeps it"))
    if binlog:
        from tidemill.cli.playground import demo_binlog

        equal = demo_binlog.run(place, console, seconds=seconds, rate=rate, seed=seed, stores=stores)
    else:
        outcome = run(options, console)
        summarize(outcome, console)
        equal = outcome.equal
    if not equal:
        console.print(f"[red]Not equal.[/] Logs and data are in {place}; seed {seed}.")
        raise typer.Exit(1)
    console.print("[green]Equal:[/] what was delivered, applied in order, is what the upstream holds.")
    if folder is None:
        shutil.rmtree(place)
    if not binlog:
        show_next(console)


def run(options: Options, console: Console) -> Outcome:
    """The demo itself. Raises DemoFailed when a part of it ends."""
    outcome = Outcome(lags_s=[], rate=options.rate)
    folder = options.folder
    with ExitStack() as stack:
        broker = _broker(stack, console) if options.kafka else ""
        database = _database(stack, console) if options.mysql else ""
        reader = _reader(stack, console) if options.canal else None
        sink = f"kafka://{broker}/{TOPIC}" if broker else f"file://{folder}/delivered"
        uri = database or (reader.uri if reader is not None else f"{sink}?protocol=open-protocol&partition-num={options.partitions}")
        console.print("Starting the upstream …")
        upstream = stack.enter_context(
            Upstream(folder, seed=options.seed, rate=options.rate, options=("--stores", str(options.stores), "--resolved-interval", "0.5"))
        )
        upstream.call("pause")
        console.print(f"Upstream: PD at {upstream.pd}. Starting capture and Spark (about ten seconds) …")
        served = ("--status-addr", "127.0.0.1:0")
        delivery = stack.enter_context(Delivery(folder, upstream, uri, options=served, start_ts=upstream.began_ts))
        _wait_for_start(upstream, delivery, console)
        if reader is None and not database:
            _show_changes(options, broker, upstream, delivery, console)
        console.print(f"\nThe workload begins. The page of this run, while it lasts: http://{delivery.status()['status_addr']}/")
        began = time.monotonic()
        _watch(options, upstream, delivery, outcome, console)
        end_ts = upstream.rest()
        console.print("The workload rests; waiting until all of it is delivered …")
        delivery.wait_until(end_ts)
        if reader is not None:
            delivery.wait_until_served(end_ts)
        outcome.seconds = time.monotonic() - began
        truth = {} if database else tables_of(upstream, end_ts)
        entries = [] if reader is None else list(reader.end())
        outcome.upstream, outcome.written, outcome.feed = upstream.stats(), upstream.call("written"), dict(delivery.feed_status())
        if delivery.stop() != 0:
            raise DemoFailed("tidemill run did not end with 0", hint=f"See {delivery.output}.")
        if database:
            _diff(upstream, database, outcome, console)
        elif reader is not None:
            _compare_entries(options, entries, truth, outcome)
        else:
            _compare(options, broker, truth, outcome)
    return outcome


def _reader(stack: ExitStack, console: Console) -> JavaReader:
    from tidemill.demo.canal import JavaReader

    console.print("Starting Canal's Java client …")
    (port,) = free_ports(1)
    return stack.enter_context(JavaReader(f"127.0.0.1:{port}", DESTINATION))


def _broker(stack: ExitStack, console: Console) -> str:
    from tidemill.playground.programs.kafka_broker import KafkaBroker

    console.print("Starting a Kafka broker …")
    return str(stack.enter_context(KafkaBroker()).address)


def _database(stack: ExitStack, console: Console) -> str:
    from tidemill.playground.programs.mariadb import MariaDbServer

    console.print("Starting a MariaDB …")
    return stack.enter_context(MariaDbServer()).uri


def _diff(upstream: Upstream, database: str, outcome: Outcome, console: Console) -> None:
    """Compare by `tidemill diff`, as a person would: the run has ended, its checkpoint is in the database."""
    from tidemill.diff.job import Place
    from tidemill.diff.moment import choose
    from tidemill.diff.repair import shown
    from tidemill.diff.session import Comparison, Options
    from tidemill.diff.upstream import Wish, of_cluster
    from tidemill.rules.table_filter import TableFilter

    wish = Wish(TableFilter(["*.*"]))
    place, ts = choose(Place(uri=database), None, None)
    console.print("tidemill diff: reading the upstream's tables at the checkpoint …")
    found = of_cluster(upstream.pd, (None, None, None), ts, wish)
    report = Comparison(found, place, wish, Options(), lambda what, items: lambda done: None).run()
    feed = outcome.feed or {}
    outcome.rows, outcome.ddls, outcome.tables = feed.get("rows", 0), feed.get("ddls", 0), len(report.tables)
    outcome.differences = (
        *(f"{one.name} {one.problem}" for one in report.tables if one.problem),
        *(shown(report.compared[one.table], one) for one in report.differences),
    )


def _wait_for_start(upstream: Upstream, delivery: Delivery, console: Console) -> None:
    """Show progress until the rows that are there already are delivered: Spark has started then."""
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while not (delivery.feed_status().get("batches") and delivery.status().get("status_addr")):
            delivery.check()
            live.update(_progress(upstream.stats(), delivery.capture_status(), delivery.feed_status()))
            time.sleep(REFRESH_S)


def _show_changes(options: Options, broker: str, upstream: Upstream, delivery: Delivery, console: Console) -> None:
    """Print statements, each with its message as the sink has it."""
    from tidemill.demo import first

    console.print("\nFour statements, and the messages in Open Protocol that came of them:")
    for one in first.changes(upstream, delivery, lambda: _delivered(options, broker)):
        where = f"in topic {one.topic}" + (f", in each of its {one.partitions} partitions" if one.partitions > 1 else "")
        console.print(f"\n  [bold]{escape(one.sql)}[/]")
        console.print(Text(f"  key    {one.key}"))
        console.print(Text(f"  value  {one.value}"))
        console.print(f"  [dim]{where}, {one.seconds:.1f} s after the statement ended[/]")


def _watch(options: Options, upstream: Upstream, delivery: Delivery, outcome: Outcome, console: Console) -> None:
    """Let the workload run, and show progress."""
    assert outcome.lags_s is not None
    upstream.call("resume")
    end = time.monotonic() + options.seconds
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while time.monotonic() < end:
            delivery.check()
            stats, feed = upstream.stats(), delivery.feed_status()
            outcome.lags_s.append(max(0.0, (tso.physical_ms(stats["ts"]) - tso.physical_ms(feed["checkpoint_ts"])) / 1000))
            live.update(_progress(stats, delivery.capture_status(), feed))
            time.sleep(REFRESH_S)


def _progress(upstream: Any, capture: Any, feed: Any) -> Table:
    table = Table(box=None, show_header=False)
    table.add_column(style="bold")
    table.add_column()
    work = upstream["workload"] or {}
    table.add_row("upstream", f"{upstream['rows_written']:,} keys in {upstream['transactions']:,} transactions, {work.get('ddls', 0)} DDLs")
    table.add_row("", f"{upstream['tables']} tables, {upstream['regions']} regions, {upstream['locks']} locks")
    table.add_row(
        "change log", f"{capture.get('rows', 0):,} rows, {capture.get('segments', 0):,} segments, lag {capture.get('lag_s') or 0:.1f} s"
    )
    lag = f"lag {feed.get('checkpoint_lag_s') or 0:.1f} s" if feed.get("batches") else "Spark starts"
    table.add_row("delivered", f"{feed.get('rows', 0):,} rows, {feed.get('ddls', 0)} DDLs in {feed.get('batches', 0):,} batches, {lag}")
    return table


def _delivered(options: Options, broker: str) -> Iterator[Delivered]:
    """What the sink has got, from its beginning."""
    from tidemill.demo.delivered import from_files, from_kafka

    return from_kafka(broker, TOPIC) if broker else from_files(options.folder / "delivered")


def _compare(options: Options, broker: str, truth: Any, outcome: Outcome) -> None:
    from tidemill.consumer.tables.sqlite import SqliteTables
    from tidemill.demo.audit import Audit
    from tidemill.demo.compare import compare

    audit = Audit()
    audit.take(_delivered(options, broker))
    audit.finish()
    tables = SqliteTables(options.folder / "tables.db")
    audit.rebuild(tables)
    outcome.rows, outcome.repeats, outcome.messages = len(audit.rows), audit.repeats, audit.messages
    outcome.split_updates = audit.split_updates()
    outcome.ddls, outcome.tables = len(audit.ddls), len(truth)
    outcome.problems = tuple(audit.problems)
    if outcome.expected != outcome.rows:
        outcome.problems += (f"the upstream's changes make {outcome.expected:,} row events, and {outcome.rows:,} were delivered",)
    outcome.differences = tuple(str(d) for d in compare(tables, truth))


def _compare_entries(options: Options, entries: list[Entry], truth: Any, outcome: Outcome) -> None:
    from tidemill.consumer.tables.sqlite import SqliteTables
    from tidemill.demo.canal import EntryAudit
    from tidemill.demo.compare import compare

    tables = SqliteTables(options.folder / "tables.db")
    audit = EntryAudit(tables)
    audit.take(entries)
    audit.finish()
    outcome.rows, outcome.messages, outcome.ddls, outcome.tables = audit.rows, audit.entries, audit.ddls, len(truth)
    outcome.problems = tuple(audit.problems)
    outcome.differences = tuple(str(d) for d in compare(tables, truth))


def summarize(outcome: Outcome, console: Console) -> None:
    """Print the end of the story."""
    table = Table(box=None, show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for name, text in figures(outcome):
        table.add_row(name, text)
    console.print(table)
    for text in (*outcome.problems, *outcome.differences)[:SHOWN_DIFFERENCES]:
        console.print(f"  [red]{escape(text)}[/]")


def figures(outcome: Outcome) -> list[tuple[str, str]]:
    """Return lines of figures. Each says what it counts."""
    upstream, written, lags = outcome.upstream or {}, outcome.written, sorted(outcome.lags_s or [0.0])
    events = f"{outcome.rows:,} row events, {outcome.ddls} DDLs"
    if outcome.messages:
        events += f" in {outcome.messages:,} messages, resolved events included; {outcome.repeats} repeats"
    split = "updates" if outcome.split_updates is None else f"{outcome.split_updates:,} updates"
    return [
        ("upstream wrote", f"{written['row_changes']:,} row changes in {upstream.get('transactions', 0):,} transactions"),
        ("", f"not counted: {written['without_key']:,} rows of tables without a key, which a changefeed leaves out, as TiCDC does"),
        ("", f"not counted: {written['others']:,} keys of schemas, indexes and TiDB's own tables"),
        ("delivered", events),
        ("", f"{split} that change a unique key are two events, a delete and an insert"),
        (
            "took",
            f"{outcome.seconds:.1f} s; the workload is held to {outcome.rate:g} transactions/s (--rate), so this is no measure of speed",
        ),
        ("lag", f"median {lags[len(lags) // 2]:.1f} s, longest {lags[-1]:.1f} s behind the upstream's clock; Spark's start is not in it"),
        ("compared", f"{outcome.tables} tables, {len(outcome.differences)} differences, {len(outcome.problems)} broken guarantees"),
    ]


def show_next(console: Console) -> None:
    """Print what a person would type next."""
    console.print(f"\nWhat next: the same by hand, in three terminals. The page of the second: http://{PAGE}/")
    for line in next_commands(program()):
        console.print(Text(f"  {line}"))
    console.print("More: docs/quick-start.md")
