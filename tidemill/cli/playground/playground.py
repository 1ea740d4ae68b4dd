"""`tidemill playground`: serve an embedded TiDB upstream, read tables at a timestamp, control a running one."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tidemill import tso
from tidemill.cli.playground.next_steps import PAGE, next_commands, program
from tidemill.cli.playground.playground_ctl import CONTEXT, PdOption, TableOption, ctl
from tidemill.cli.shared.options import JsonOption, Output, OutputOption, form
from tidemill.cli.shared.tls import CaOption, CertOption, KeyOption
from tidemill.errors import ConfigError, PlaygroundFault, cannot_listen

if TYPE_CHECKING:
    from tidemill.binlog.client.options import ClientOptions
    from tidemill.playground.server import Playground
    from tidemill.playground.services.gate import ServerTls

REFRESH = 0.5

app = typer.Typer(invoke_without_command=True, context_settings=CONTEXT)
app.add_typer(ctl, name="ctl")


@app.callback()
def serve(
    context: typer.Context,
    listen: Annotated[
        str, typer.Option("--listen", help="HOST:PORT of PD and of the first store; port 0 takes a free one.")
    ] = "127.0.0.1:12379",
    seed: Annotated[int, typer.Option("--seed", help="Seed of the workload: the same seed writes the same changes.")] = 0,
    workload: Annotated[str, typer.Option("--workload", help="mixed, bank, append, soak or none.")] = "mixed",
    rate: Annotated[float, typer.Option("--rate", help="Transactions a second; 0 is as many as possible.")] = 50.0,
    rows: Annotated[int, typer.Option("--rows", help="Rows of an ordinary transaction.")] = 4,
    tables: Annotated[str, typer.Option("--tables", help="Only these tables of the workload: DATABASE.TABLE,…")] = "",
    stores: Annotated[int, typer.Option("--stores", min=1, help="Number of TiKV stores.")] = 1,
    ddl_every: Annotated[int, typer.Option("--ddl-every", help="Transactions between two DDLs; 0 for no DDL.")] = 120,
    region_every: Annotated[int, typer.Option("--region-every", help="Transactions between two changes of regions; 0 for none.")] = 150,
    duration: Annotated[float, typer.Option("--duration", help="Seconds that the workload runs; 0: no limit.")] = 0.0,
    transactions: Annotated[int, typer.Option("--transactions", help="Transactions of the workload; 0: no limit.")] = 0,
    resolved_interval: Annotated[float, typer.Option("--resolved-interval", help="Seconds between two resolved timestamps.")] = 1.0,
    gc_life_time: Annotated[float, typer.Option("--gc-life-time", help="Seconds of history to keep; 0 keeps all.")] = 0.0,
    gc_barriers: Annotated[bool, typer.Option("--gc-barriers", help="PD serves GC barriers, as PD 9 does.")] = False,
    pds: Annotated[int, typer.Option("--pds", min=0, help="PD members, each on its own port; 0: PD is at the first store's port.")] = 0,
    gates: Annotated[bool, typer.Option("--gates", help="Let `ctl wire` break connections.")] = False,
    old_feed: Annotated[bool, typer.Option("--old-feed", help="Stores do not serve EventFeedV2, as before 7.5.")] = False,
    version: Annotated[
        str,
        typer.Option("--version", help="The version that stores report to PD. From 9.0.0-beta.2 on, JSON is printed in TiDB's newer way."),
    ] = "8.5.7",
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", help="PEM file with the servers' certificate. Turns TLS on.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="PEM file with the key of --tls-cert.")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option("--tls-client-ca", help="Clients have to show a certificate of this authority.")
    ] = None,
    orphan_every: Annotated[
        int, typer.Option("--orphan-every", help="Transactions between two whose client dies (workload soak); 0 for none.")
    ] = 40,
    large_every: Annotated[int, typer.Option("--large-every", help="Transactions between two large ones (workload soak); 0 for none.")] = 0,
    large_rows: Annotated[int, typer.Option("--large-rows", help="Rows of a large transaction.")] = 1000,
    large_bytes: Annotated[int, typer.Option("--large-bytes", help="Bytes of each row of a large transaction, about.")] = 1000,
    load_kv: Annotated[
        Path | None,
        typer.Option("--load-kv", help="File of meta keys that the store has instead of its own: JSON lines; needs --workload none."),
    ] = None,
    kafka: Annotated[
        bool, typer.Option("--kafka", help="Start a Kafka broker beside it, and show how to deliver there. It ends with the playground.")
    ] = False,
    binlog: Annotated[
        bool, typer.Option("--binlog", help="Write binlogs too, as TiDB with enable-binlog: into the Pumps that are in PD's registry.")
    ] = False,
    binlog_strategy: Annotated[
        str, typer.Option("--binlog-strategy", help="Which Pump takes a transaction: range, hash or score.")
    ] = "range",
    ignore_error: Annotated[
        bool, typer.Option("--ignore-error", help="Go on without binlogs when no Pump takes one, instead of refusing to write.")
    ] = False,
    exit_after: Annotated[bool, typer.Option("--exit-after", help="End when the workload has ended, instead of serving on.")] = False,
) -> None:
    """Serve an embedded TiDB cluster: PD and TiKV over gRPC, with a workload that writes and changes tables."""
    if context.invoked_subcommand is not None:
        return
    from tidemill.playground import server
    from tidemill.playground.workload.mixed import Options

    host, port = _address(listen)
    options = Options(
        ddl_every=ddl_every, region_every=region_every, rows=rows, tables=tuple(t.strip() for t in tables.split(",") if t.strip()),
        orphan_every=orphan_every, large_every=large_every, large_rows=large_rows, large_bytes=large_bytes,
    )  # fmt: skip
    tls = _server_tls(tls_cert, tls_key, tls_client_ca)
    loaded, broker = _lines(load_kv, workload), ""
    binlogs = _binlogs(binlog_strategy, ignore_error, workload, plain=tls is None and loaded is None) if binlog else None

    async def run() -> None:
        playground = server.Playground(
            seed, stores=stores, resolved_interval=resolved_interval, gc_life_time=gc_life_time, gc_barriers=gc_barriers, tls=tls,
            pds=pds, gates=gates, old_feed=old_feed, version=version, load_kv=loaded, binlog=binlogs,
        )  # fmt: skip
        try:
            await playground.start(host, port)
        except OSError as error:
            raise cannot_listen("--listen", listen, error) from error
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, playground.stopping.set)
        try:
            if binlogs is not None:
                print(f"PD is at {playground.pd_address}", flush=True)
                print("waiting for a Pump", flush=True)
                if not await _found_pump(playground):
                    return
            await playground.turn(lambda: playground.prepare(workload, options))
            if binlogs is None:
                print(f"PD is at {playground.pd_address}", flush=True)
            else:
                print("writing binlogs", flush=True)
            if broker:
                _show_way(playground.pd_address, broker)
            elif sys.stdout.isatty():
                _show_steps(playground.pd_address)
            await _serve(playground, rate=rate, transactions=transactions, seconds=duration, serve_on=not exit_after)
        finally:
            await playground.stop()
        if exit_after and playground.workload is not None and (faults := playground.workload.progress.faults):
            raise PlaygroundFault(f"the playground failed {faults} times under the workload of seed {seed}; each is told above")

    with ExitStack() as stack:
        if kafka:
            broker = _broker(stack)
        asyncio.run(run())


def _broker(stack: ExitStack) -> str:
    """Start a broker. Returns its address."""
    from tidemill.playground.programs.kafka_broker import KafkaBroker

    return str(stack.enter_context(KafkaBroker()).address)


def _show_way(pd: str, broker: str) -> None:
    """Print what a person would type next."""
    topic = f"kafka://{broker}/playground"
    print(f"Kafka is at {broker}. In two other terminals:", flush=True)
    print(f"  tidemill run --pd {pd} --log playground-log --sink-uri '{topic}?protocol=open-protocol'", flush=True)
    print(f"  tidemill show -f {topic}", flush=True)


def _show_steps(pd: str) -> None:
    """Print what a person would type next, to see changes in a file."""
    _, run, show = next_commands(program(), pd=pd)
    print(f"In two other terminals, to see its changes (page: http://{PAGE}/):\n  {run}\n  {show}", flush=True)


async def _found_pump(playground: Playground) -> bool:
    """Wait for a Pump. Returns False if the playground is stopped before."""
    found, stopped = asyncio.ensure_future(playground.follow_pumps()), asyncio.ensure_future(playground.stopping.wait())
    await asyncio.wait({found, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if found.done():
        found.result()
        return True
    found.cancel()
    return False


def _binlogs(strategy: str, ignore_error: bool, workload: str, *, plain: bool) -> ClientOptions:
    """How binlogs are written. Raises ConfigError."""
    from tidemill.binlog.client.options import ClientOptions, Strategy

    if strategy not in list(Strategy):
        raise ConfigError(f"--binlog-strategy {strategy} is not one of {', '.join(Strategy)}")
    if workload == "soak" or not plain:
        raise ConfigError(
            "--binlog does not go with --workload soak, --tls-cert or --load-kv",
            hint="Binlogs are written of what SQL writes, over connections without TLS.",
        )
    return ClientOptions(strategy=Strategy(strategy), ignore_error=ignore_error)


async def _serve(playground: Playground, *, rate: float, transactions: int, seconds: float, serve_on: bool) -> None:
    """Run the workload, show figures, and wait for the end."""
    show = asyncio.ensure_future(_show(playground))
    try:
        await playground.work(rate=rate, transactions=transactions, seconds=seconds, go_on=True)
        if not playground.stopping.is_set():
            print("the workload has ended", flush=True)
            if serve_on:
                await playground.stopping.wait()
    finally:
        show.cancel()


def _server_tls(certificate: Path | None, key: Path | None, client_ca: Path | None) -> ServerTls | None:
    """The servers' side of TLS. Raises ConfigError."""
    from tidemill.playground.services.gate import ServerTls

    if (certificate is None) != (key is None) or (client_ca is not None and certificate is None):
        raise ConfigError("--tls-cert and --tls-key belong together", hint="--tls-client-ca needs both.")
    if certificate is None or key is None:
        return None
    try:
        return ServerTls(certificate.read_bytes(), key.read_bytes(), client_ca.read_bytes() if client_ca is not None else None)
    except OSError as error:
        raise ConfigError(f"a file of TLS cannot be read: {error}") from error


def _lines(path: Path | None, workload: str) -> list[str] | None:
    """The lines of --load-kv. Raises ConfigError."""
    if path is None:
        return None
    if workload != "none":
        raise ConfigError("--load-kv needs --workload none", hint="A store with loaded meta keys has no SQL of its own.")
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--load-kv {path} cannot be read: {error}") from None


def _address(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"--listen {text!r} is not a HOST:PORT")
    return host or "127.0.0.1", int(port)


async def _show(playground: Playground) -> None:
    """Show a live table of figures if this is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while True:
            live.update(_figures(playground.stats()))
            await asyncio.sleep(REFRESH)


def _figures(stats: dict[str, Any]) -> Table:
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column()
    work = stats["workload"] or {}
    table.add_row("PD", stats["pd"])
    table.add_row("time", tso.describe(stats["ts"]))
    table.add_row("written", f"{stats['rows_written']:,} keys in {stats['transactions']:,} transactions, {work.get('ddls', 0)} DDLs")
    table.add_row("cluster", f"{stats['tables']} tables, {stats['regions']} regions, {len(stats['stores'])} stores, {stats['locks']} locks")
    table.add_row("clients", f"{stats['streams']} streams, {stats['subscriptions']} subscriptions")
    return table


@app.command()
def query(
    pd: PdOption,
    table: TableOption,
    at: Annotated[str, typer.Option("--at", help="TSO, RFC 3339 time, `now` or -DISTANCE.")] = "now",
    output: OutputOption = Output.TEXT,
    as_json: JsonOption = False,
    tz: Annotated[str, typer.Option("--tz", help="Time zone in which TIMESTAMPs are shown.")] = "UTC",
    ca: CaOption = None,
    cert: CertOption = None,
    key: KeyOption = None,
) -> None:
    """Read a table at a timestamp through PD and TiKV, of a playground or of a real cluster.

    With `--output json` a row is {"column": value}: numbers and text as they are, binary columns as {"base64": …}; BIT, ENUM and SET
    are numbers.
    """
    from tidemill.capture.clusterversion import oldest_version
    from tidemill.capture.tikv.client.pd import PdClient
    from tidemill.capture.tikv.client.tls import security_of
    from tidemill.capture.tikv.read.snapshot import Snapshot
    from tidemill.playground.store import truth
    from tidemill.tidb.types.jsonstyle import style_of

    try:
        zone = ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError):
        raise ConfigError(f"unknown time zone {tz!r}") from None

    async def run() -> None:
        client = await PdClient.connect(pd, security=security_of(pd.split(","), ca, cert, key))
        try:
            snapshot = Snapshot(client, tso.parse(at, await client.tso()))
            info = truth.find_table(await truth.describe_remote(snapshot), table)
            rows = truth.read_remote(snapshot, info, zone, style_of(oldest_version(await client.stores())))
            if form(output, as_json) is Output.JSON:
                async for row in rows:
                    sys.stdout.write(json.dumps(truth.json_row(info, row), ensure_ascii=False) + "\n")
            else:
                shown = Table(*[c.name for c in info.output_columns])
                async for row in rows:
                    shown.add_row(*["NULL" if v is None else str(v) for v in truth.json_row(info, row).values()])
                Console().print(shown)
        finally:
            await client.close()

    asyncio.run(run())
