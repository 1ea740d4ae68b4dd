"""`tidemill playground ctl`: commands for a running playground. All but `sql` print its answer as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemill import tso
from tidemill.cli.shared.options import JsonOption, Output, OutputOption, form
from tidemill.cli.shared.tls import CaOption, CertOption, KeyOption

CONTEXT = {"help_option_names": ["-h", "--help"]}

ctl = typer.Typer(help="Control a running playground.", no_args_is_help=True, context_settings=CONTEXT)

ADDRESS = "127.0.0.1:12379"
"""Where a playground listens unless it is told otherwise."""

PdOption = Annotated[
    str,
    typer.Option(
        "--pd", help=f"Address of the playground: HOST:PORT. By default {ADDRESS}.", default_factory=lambda: ADDRESS, show_default=False
    ),
]
TableOption = Annotated[str, typer.Option("--table", help="DATABASE.TABLE.")]
RegionOption = Annotated[int, typer.Option("--region", help="Region.")]
StoreOption = Annotated[int, typer.Option("--store", help="Store.")]
SecondsOption = Annotated[float, typer.Option("--seconds", help="How long it lasts.")]

_tls: dict[str, Path | None] = {}
"""What --ca, --cert and --key of this command line say."""


@ctl.callback()
def remember_tls(ca: CaOption = None, cert: CertOption = None, key: KeyOption = None) -> None:
    """Control a running playground. Flags of TLS come before the command."""
    _tls.update(ca=ca, cert=cert, key=key)


def _ctl(pd: str, command: str, **arguments: Any) -> None:
    print(json.dumps(_answer(pd, command, **arguments), ensure_ascii=False, indent=2))


def _answer(pd: str, command: str, **arguments: Any) -> dict[str, Any]:
    from tidemill.capture.tikv.client.tls import security_of
    from tidemill.playground.control import call

    security = security_of(pd.split(","), _tls.get("ca"), _tls.get("cert"), _tls.get("key"))
    credentials = None if security is None else security.credentials()
    return call(pd, command, credentials=credentials, **arguments)


@ctl.command("sql")
def ctl_sql(
    text: Annotated[str, typer.Argument(help="Statements, separated by semicolons.")],
    pd: PdOption,
    output: OutputOption = Output.TEXT,
    as_json: JsonOption = False,
) -> None:
    """Run SQL statements, and show the result of the last; docs/playground.md lists what is understood."""
    found = _answer(pd, "sql", text=text)
    if form(output, as_json) is Output.JSON:
        print(json.dumps(found, ensure_ascii=False, indent=2))
    elif found["columns"]:
        _print_rows(found["columns"], found["rows"])
    else:
        print(f"{found['affected']} rows changed" + (f", commit ts {found['commit_ts']}" if found["commit_ts"] else ""))


def _print_rows(columns: list[str], rows: list[list[Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns)
    for row in rows:
        table.add_row(*("NULL" if value is None else str(value) for value in row))
    Console(soft_wrap=True, highlight=False, markup=False).print(table)
    print(f"{len(rows)} rows")


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
    table: Annotated[str, typer.Option("--table", help="Merge the first two regions of DATABASE.TABLE.")] = "",
    source: Annotated[int, typer.Option("--source", help="Region that goes.")] = 0,
    target: Annotated[int, typer.Option("--target", help="Neighbour that stays.")] = 0,
) -> None:
    """Merge two neighbouring regions."""
    _ctl(pd, "merge", **({"table": table} if table else {"source": source, "target": target}))


@ctl.command("transfer-leader")
def ctl_transfer_leader(
    pd: PdOption,
    region: RegionOption,
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
    kind: Annotated[str, typer.Option("--kind", help="pessimistic or lock: locks that write nothing.")] = "",
    primary: Annotated[str, typer.Option("--primary", help="The first row is left locked, or committed, or rolled-back.")] = "locked",
) -> None:
    """Prewrite rows unchanged and leave them locked, so that resolved timestamps stand still."""
    _ctl(pd, "lock", table=table, handles=handle, ttl_ms=ttl_ms, async_commit=async_commit, kind=kind, primary=primary)


@ctl.command("unlock")
def ctl_unlock(
    pd: PdOption,
    start_ts: Annotated[int, typer.Option("--start-ts", help="Which lock; 0 is all.")] = 0,
    rollback: Annotated[bool, typer.Option("--rollback", help="Roll back instead of committing.")] = False,
) -> None:
    """End locks that `lock` left."""
    _ctl(pd, "unlock", start_ts=start_ts, rollback=rollback)


@ctl.command("gc")
def ctl_gc(
    pd: PdOption,
    life_time: Annotated[str, typer.Option("--life-time", help="How much history stays: 10m, 0s.")] = "10m",
    remember: Annotated[bool, typer.Option("--remember", help="`dump` shows what is collected from now on.")] = False,
) -> None:
    """Collect old versions, as far as the services' safe points allow."""
    distance = tso.physical_ms(tso.parse("now", 1 << 62) - tso.parse(f"-{life_time}", 1 << 62))
    _ctl(pd, "gc", life_time_ms=distance, remember=remember)


@ctl.command("break-streams")
def ctl_break_streams(pd: PdOption, store: StoreOption = 1) -> None:
    """End all change feed streams of a store with the gRPC status of a store that shuts down."""
    _ctl(pd, "break-streams", store=store)


@ctl.command("wire")
def ctl_wire(
    pd: PdOption,
    fault: Annotated[str, typer.Option("--fault", help="reset, cut (inside a frame), goaway, stall or refuse.")],
    store: StoreOption = 1,
    member: Annotated[int, typer.Option("--member", help="A PD member instead of a store.")] = 0,
    seconds: SecondsOption = 1.0,
) -> None:
    """Break the connections of a store or a PD member (of a playground with --gates)."""
    _ctl(pd, "wire", fault=fault, store=store, member=member, seconds=seconds)


@ctl.command("restart-store")
def ctl_restart_store(pd: PdOption, store: StoreOption, seconds: SecondsOption = 1.0) -> None:
    """Kill a store; it is back after some seconds."""
    _ctl(pd, "restart-store", store=store, seconds=seconds)


@ctl.command("restart-pd")
def ctl_restart_pd(
    pd: PdOption,
    member: Annotated[int, typer.Option("--member", help="Which; 0 is the leader.")] = 0,
    all_: Annotated[bool, typer.Option("--all", help="All members at once.")] = False,
    seconds: SecondsOption = 1.0,
) -> None:
    """Kill PD members; they are back after some seconds."""
    _ctl(pd, "restart-pd", member=member, all=all_, seconds=seconds)


@ctl.command("pd-leader")
def ctl_pd_leader(pd: PdOption, member: Annotated[int, typer.Option("--member", help="Who leads; 0 is any other.")] = 0) -> None:
    """Make another PD member the leader."""
    _ctl(pd, "pd-leader", member=member)


@ctl.command("fail-region")
def ctl_fail_region(
    pd: PdOption,
    region: RegionOption,
    error: Annotated[
        str, typer.Option("--error", help="not_leader, no_leader, epoch_not_match, region_not_found, server_is_busy or congested.")
    ] = "region_not_found",
) -> None:
    """End the subscriptions of a region with an error."""
    _ctl(pd, "fail-region", region=region, error=error)


@ctl.command("mute")
def ctl_mute(pd: PdOption, region: RegionOption) -> None:
    """Drop the subscriptions of a region without telling the clients."""
    _ctl(pd, "mute", region=region)


@ctl.command("busy")
def ctl_busy(
    pd: PdOption,
    scans: Annotated[int, typer.Option("--scans", help="Pending scans from which on stores refuse; 0: all.")] = 0,
    seconds: SecondsOption = 1.0,
) -> None:
    """Make stores refuse subscriptions with server_is_busy for a while."""
    _ctl(pd, "busy", scans=scans, seconds=seconds)


@ctl.command("pace")
def ctl_pace(pd: PdOption, seconds: Annotated[float, typer.Option("--seconds", help="Between two resolved timestamps.")]) -> None:
    """Change how often resolved timestamps come."""
    _ctl(pd, "pace", seconds=seconds)


@ctl.command("clock")
def ctl_clock(pd: PdOption, ms: Annotated[int, typer.Option("--ms", min=1, help="How far, in milliseconds.")]) -> None:
    """Let PD's time jump ahead."""
    _ctl(pd, "clock", ms=ms)


@ctl.command("dump")
def ctl_dump(pd: PdOption, path: Annotated[Path, typer.Option("--path", help="Where the playground writes it.")]) -> None:
    """Write every version of every row into an Arrow file."""
    _ctl(pd, "dump", path=str(path.absolute()))


def _plain(name: str, text: str) -> None:
    def command(pd: PdOption) -> None:
        _ctl(pd, name)

    command.__doc__ = text
    ctl.command(name)(command)


_plain("regions", "List all regions.")
_plain("resolve-orphans", "Resolve the locks of dead clients, as a reader of their rows would.")
_plain("stats", "Print figures: rows, transactions, regions, locks, faults.")
_plain("pause", "Pause the workload.")
_plain("resume", "Resume the workload.")
_plain("stop", "End the playground.")
