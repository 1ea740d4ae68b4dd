"""`tidemill playground`: serve an embedded TiDB upstream, read tables at a timestamp, control a running one."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tidemill import tso
from tidemill.errors import ConfigError

if TYPE_CHECKING:
    from tidemill.playground.server import Playground

CONTEXT = {"help_option_names": ["-h", "--help"]}
REFRESH = 0.5

app = typer.Typer(invoke_without_command=True, context_settings=CONTEXT)
ctl = typer.Typer(help="Control a running playground.", no_args_is_help=True, context_settings=CONTEXT)
app.add_typer(ctl, name="ctl")

PdOption = Annotated[str, typer.Option("--pd", help="Address of the playground: HOST:PORT.")]
TableOption = Annotated[str, typer.Option("--table", help="SCHEMA.TABLE.")]


class Output(StrEnum):
    """How rows are printed."""

    JSON = "json"
    TABLE = "table"


@app.callback()
def serve(
    context: typer.Context,
    listen: Annotated[
        str, typer.Option("--listen", help="HOST:PORT of PD and the first store; port 0 takes a free one.")
    ] = "127.0.0.1:2379",
    seed: Annotated[int, typer.Option("--seed", help="Decides what the workload writes.")] = 0,
    workload: Annotated[str, typer.Option("--workload", help="mixed, bank, append or none.")] = "mixed",
    rate: Annotated[float, typer.Option("--rate", help="Transactions a second; 0 is as many as possible.")] = 50.0,
    rows: Annotated[int, typer.Option("--rows", help="Rows of an ordinary transaction.")] = 4,
    tables: Annotated[str, typer.Option("--tables", help="Only these tables of the workload: SCHEMA.TABLE,…")] = "",
    stores: Annotated[int, typer.Option("--stores", min=1, help="TiKV stores.")] = 1,
    ddl_every: Annotated[int, typer.Option("--ddl-every", help="Transactions between two DDLs; 0 for no DDL.")] = 120,
    region_every: Annotated[int, typer.Option("--region-every", help="Transactions between two changes of regions; 0 for none.")] = 150,
    duration: Annotated[float, typer.Option("--duration", help="Seconds of work; 0 is endless.")] = 0.0,
    transactions: Annotated[int, typer.Option("--transactions", help="Transactions of work; 0 is endless.")] = 0,
    resolved_interval: Annotated[float, typer.Option("--resolved-interval", help="Seconds between two resolved timestamps.")] = 1.0,
    gc_life_time: Annotated[float, typer.Option("--gc-life-time", help="Seconds of history to keep; 0 keeps all.")] = 0.0,
    gc_barriers: Annotated[bool, typer.Option("--gc-barriers", help="PD serves GC barriers, as PD 9 does.")] = False,
    exit_after: Annotated[bool, typer.Option("--exit-after", help="End when the work is done, instead of serving on.")] = False,
) -> None:
    """Serve an embedded TiDB cluster: PD and TiKV over gRPC, with a workload that writes and changes tables."""
    if context.invoked_subcommand is not None:
        return
    from tidemill.playground import server
    from tidemill.playground.workload import Options

    host, port = _address(listen)
    options = Options(
        ddl_every=ddl_every, region_every=region_every, rows=rows, tables=tuple(t.strip() for t in tables.split(",") if t.strip())
    )  # fmt: skip

    async def run() -> None:
        playground = server.Playground(
            seed, stores=stores, resolved_interval=resolved_interval, gc_life_time=gc_life_time, gc_barriers=gc_barriers
        )
        try:
            await playground.start(host, port)
        except OSError as error:
            raise ConfigError(str(error)) from error
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, playground.stopping.set)
        try:
            playground.prepare(workload, options)
            print(f"PD is at {playground.pd_address}", flush=True)
            await _serve(playground, rate=rate, transactions=transactions, seconds=duration, serve_on=not exit_after)
        finally:
            await playground.stop()

    asyncio.run(run())


async def _serve(playground: Playground, *, rate: float, transactions: int, seconds: float, serve_on: bool) -> None:
    """Work, show figures, and wait for the end."""
    show = asyncio.ensure_future(_show(playground))
    try:
        await playground.work(rate=rate, transactions=transactions, seconds=seconds)
        if not playground.stopping.is_set():
            print("the workload has ended", flush=True)
            if serve_on:
                await playground.stopping.wait()
    finally:
        show.cancel()


def _address(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"--listen {text!r} is no HOST:PORT")
    return host or "127.0.0.1", int(port)


async def _show(playground: Playground) -> None:
    """A live table of figures on a terminal; nothing elsewhere."""
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
    table.add_row("written", f"{stats['rows_written']:,} rows in {stats['transactions']:,} transactions, {work.get('ddls', 0)} DDLs")
    table.add_row("cluster", f"{stats['tables']} tables, {stats['regions']} regions, {len(stats['stores'])} stores, {stats['locks']} locks")
    table.add_row("clients", f"{stats['streams']} streams, {stats['subscriptions']} subscriptions")
    return table


@app.command()
def query(
    pd: PdOption,
    table: TableOption,
    at: Annotated[str, typer.Option("--at", help="TSO, RFC 3339 time, `now` or -DISTANCE.")] = "now",
    output: Annotated[Output, typer.Option("--output", help="json: one object a row; table: for people.")] = Output.TABLE,
    tz: Annotated[str, typer.Option("--tz", help="Time zone in which TIMESTAMPs are shown.")] = "UTC",
) -> None:
    """Read a table at a timestamp through PD and TiKV, of a playground or of a real cluster.

    With `--output json` a row is {"column": value}: numbers and text as they are, binary columns as {"base64": …}; BIT, ENUM and SET
    are numbers.
    """
    from tidemill.capture.tikv.pd import PdClient
    from tidemill.capture.tikv.snapshot import Snapshot
    from tidemill.playground import truth

    try:
        zone = ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError):
        raise ConfigError(f"unknown time zone {tz!r}") from None

    async def run() -> None:
        client = await PdClient.connect(pd)
        try:
            snapshot = Snapshot(client, tso.parse(at, await client.tso()))
            info = truth.find_table(await truth.describe_remote(snapshot), table)
            rows = truth.read_remote(snapshot, info, zone)
            if output is Output.JSON:
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


# Control


def _ctl(pd: str, command: str, **arguments: Any) -> None:
    from tidemill.playground.control import call

    print(json.dumps(call(pd, command, **arguments), ensure_ascii=False, indent=2))


@ctl.command("sql")
def ctl_sql(pd: PdOption, text: Annotated[str, typer.Argument(help="Statements, separated by semicolons.")]) -> None:
    """Run SQL."""
    _ctl(pd, "sql", text=text)


@ctl.command("load")
def ctl_load(
    pd: PdOption,
    table: TableOption,
    rows: Annotated[int, typer.Option("--rows", min=1, help="How many rows.")],
    regions: Annotated[int, typer.Option("--regions", min=1, help="Cut the new rows into so many regions.")] = 1,
) -> None:
    """Add many made-up rows at once."""
    _ctl(pd, "load", table=table, rows=rows, regions=regions)


@ctl.command("split")
def ctl_split(pd: PdOption, table: TableOption, handle: Annotated[list[int], typer.Option("--handle", help="Where to cut.")]) -> None:
    """Split a table's regions at integer handles."""
    _ctl(pd, "split", table=table, handles=handle)


@ctl.command("merge")
def ctl_merge(
    pd: PdOption,
    table: Annotated[str, typer.Option("--table", help="Merge the first two regions of SCHEMA.TABLE.")] = "",
    source: Annotated[int, typer.Option("--source", help="Region that goes.")] = 0,
    target: Annotated[int, typer.Option("--target", help="Neighbour that stays.")] = 0,
) -> None:
    """Merge two neighbouring regions."""
    _ctl(pd, "merge", **({"table": table} if table else {"source": source, "target": target}))


@ctl.command("transfer-leader")
def ctl_transfer_leader(
    pd: PdOption,
    region: Annotated[int, typer.Option("--region", help="Region.")],
    store: Annotated[int, typer.Option("--store", help="Store of the new leader; 0 is any other.")] = 0,
) -> None:
    """Move a region's leader to another store."""
    _ctl(pd, "transfer-leader", region=region, store=store)


@ctl.command("lock")
def ctl_lock(
    pd: PdOption,
    table: TableOption,
    handle: Annotated[list[int], typer.Option("--handle", help="Rows; the first is the primary.")],
    ttl_ms: Annotated[int, typer.Option("--ttl-ms", help="After so long the client counts as dead.")] = 3_600_000,
    async_commit: Annotated[bool, typer.Option("--async-commit", help="Committed as soon as all rows are locked.")] = False,
) -> None:
    """Prewrite rows as they are and leave them locked: resolved timestamps stand still."""
    _ctl(pd, "lock", table=table, handles=handle, ttl_ms=ttl_ms, async_commit=async_commit)


@ctl.command("unlock")
def ctl_unlock(
    pd: PdOption,
    start_ts: Annotated[int, typer.Option("--start-ts", help="Which lock; 0 is all.")] = 0,
    rollback: Annotated[bool, typer.Option("--rollback", help="Roll back instead of committing.")] = False,
) -> None:
    """End locks that `lock` left."""
    _ctl(pd, "unlock", start_ts=start_ts, rollback=rollback)


@ctl.command("gc")
def ctl_gc(pd: PdOption, life_time: Annotated[str, typer.Option("--life-time", help="How much history stays: 10m, 0s.")] = "10m") -> None:
    """Collect garbage, as far as services' safe points allow."""
    distance = tso.physical_ms(tso.parse("now", 1 << 62) - tso.parse(f"-{life_time}", 1 << 62))
    _ctl(pd, "gc", life_time_ms=distance)


@ctl.command("break-streams")
def ctl_break_streams(pd: PdOption, store: Annotated[int, typer.Option("--store", help="Store.")] = 1) -> None:
    """End all change feed streams of a store, as if its process had died."""
    _ctl(pd, "break-streams", store=store)


def _plain(name: str, text: str) -> None:
    def command(pd: PdOption) -> None:
        _ctl(pd, name)

    command.__doc__ = text
    ctl.command(name)(command)


_plain("regions", "List all regions.")
_plain("stats", "Figures of the playground.")
_plain("pause", "Let the workload rest.")
_plain("resume", "Let the workload go on.")
_plain("stop", "End the playground.")
