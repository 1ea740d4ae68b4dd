"""`tidemill cli changefeed …`: TiCDC's verbs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Annotated, Any

import typer

from tidemill import tso
from tidemill.cli.cdc import tables
from tidemill.cli.cdc.client import Client
from tidemill.cli.cdc.commands import verb
from tidemill.cli.cdc.options import AllOption, ConfigOption, IdOption, KeyspaceOption, RegistryOption
from tidemill.cli.cdc.output import (
    cli_time,
    compact,
    confirm_gap,
    confirm_ineligible,
    confirm_overwrite,
    print_json,
    read_yes,
    table_names,
)
from tidemill.cli.cdc.wanted import checked, in_sink, read_config, unmatched_rules, upstream
from tidemill.cli.shared.terminal import echo
from tidemill.errors import TidemillError, made

app = typer.Typer(no_args_is_help=True, help="Manage changefeeds.")
tables.add(app)

SinkOption = Annotated[str, typer.Option("--sink-uri", help="Where changes go.")]
TargetOption = Annotated[int | None, typer.Option("--target-ts", min=0, help="End at this TSO.")]
NoConfirmOption = Annotated[bool, typer.Option("--no-confirm", help="Do not ask.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="List the tables too.")]
UpstreamPd = Annotated[str | None, typer.Option("--upstream-pd", hidden=True)]
UpstreamCa = Annotated[str | None, typer.Option("--upstream-ca", hidden=True)]
UpstreamCert = Annotated[str | None, typer.Option("--upstream-cert", hidden=True)]
UpstreamKey = Annotated[str | None, typer.Option("--upstream-key", hidden=True)]
SortEngine = Annotated[str | None, typer.Option("--sort-engine", hidden=True)]
SortDir = Annotated[str | None, typer.Option("--sort-dir", hidden=True)]
TzOption = Annotated[str | None, typer.Option("--tz", "--timezone", hidden=True)]


@verb(app, "create")
def create(
    client: Client,
    sink_uri: SinkOption = "",
    changefeed_id: Annotated[str, typer.Option("--changefeed-id", "-c", help="Its name. Default: a UUID.")] = "",
    start_ts: Annotated[int, typer.Option("--start-ts", min=0, help="Deliver what comes after this TSO. Default: now.")] = 0,
    target_ts: TargetOption = None,
    config: ConfigOption = None,
    schema_registry: RegistryOption = None,
    no_confirm: NoConfirmOption = False,
    disable_gc_check: Annotated[bool, typer.Option("--disable-gc-check", help="Do not check start-ts against GC.")] = False,
    verbose: VerboseOption = False,
    keyspace: KeyspaceOption = "default",
    upstream_pd: UpstreamPd = None,
    upstream_ca: UpstreamCa = None,
    upstream_cert: UpstreamCert = None,
    upstream_key: UpstreamKey = None,
    sort_engine: SortEngine = None,
    sort_dir: SortDir = None,
    tz: TzOption = None,
) -> None:
    """Create a changefeed and start it."""
    _say_old_flags(sort_engine, tz)
    if sort_dir:
        raise made("CDC:ErrAPIInvalidParam", "creating changefeed with `--sort-dir`, it's invalid", retryable=False)
    replica_config = in_sink(read_config(config), schema_registry=schema_registry)
    if disable_gc_check:
        replica_config["check_gc_safe_point"] = False
    if sink_uri:
        checked(replica_config, sink_uri)
    cluster = upstream(upstream_pd, upstream_ca, upstream_cert, upstream_key)
    now_ms, logical = client.tso(cluster)
    start_ts = start_ts or tso.compose(now_ms, logical)
    if not no_confirm:
        confirm_gap(now_ms, start_ts, "create")
    asked = {**cluster, "replica_config": replica_config, "start_ts": start_ts, "sink_uri": sink_uri}
    found = client.verify_tables(asked, keyspace)
    agreed = _say_ineligible(found, replica_config, ask=not no_confirm)
    for warning in unmatched_rules(replica_config, found):
        echo(f"[WARN] {warning}", err=True)
    replica_config["ignore_ineligible_table"] = no_confirm or agreed
    wanted = asked | {"changefeed_id": changefeed_id, "keyspace": keyspace, "target_ts": target_ts or 0, "replica_config": replica_config}
    info = client.create(wanted, keyspace)
    echo("Create changefeed successfully!")
    _say_created(info, found, verbose)


@verb(app, "update")
def update(
    client: Client,
    changefeed_id: IdOption,
    sink_uri: Annotated[str | None, typer.Option("--sink-uri", help="Where changes go from now on.")] = None,
    config: ConfigOption = None,
    target_ts: TargetOption = None,
    schema_registry: RegistryOption = None,
    no_confirm: NoConfirmOption = False,
    verbose: VerboseOption = False,
    keyspace: KeyspaceOption = "default",
    upstream_pd: UpstreamPd = None,
    upstream_ca: UpstreamCa = None,
    upstream_cert: UpstreamCert = None,
    upstream_key: UpstreamKey = None,
    sort_engine: SortEngine = None,
    sort_dir: SortDir = None,
) -> None:
    """Change a stopped or failed changefeed. What is not given stays; --config replaces the keys that the file has."""
    if sort_engine or sort_dir:
        echo("[WARN] this flag cannot be updated and will be ignored: --sort-engine, --sort-dir")
    old = client.changefeed(changefeed_id, keyspace)
    new = deepcopy(old)
    if config is not None:
        new["config"] = merged(old.get("config", {}), read_config(config))
    new["config"] = in_sink(new.get("config", {}), schema_registry=schema_registry)
    new |= {name: value for name, value in (("sink_uri", sink_uri), ("target_ts", target_ts)) if value is not None}
    differences = list(diff(old, new))
    if not differences:
        echo("changefeed config is the same with the old one, do nothing")
        return
    echo("Diff of changefeed config:")
    for line in differences:
        echo(line)
    if not no_confirm:
        echo("Could you agree to apply changes above to changefeed [Y/N]")
        if not read_yes():
            echo("No update to changefeed.")
            return
    replica_config = new["config"]
    found, warning = _tables_of(client, replica_config, int(old["checkpoint_ts"]), keyspace)
    agreed = _say_ineligible(found, replica_config, ask=not no_confirm)
    if not warning:
        replica_config["ignore_ineligible_table"] = no_confirm or agreed
    change = upstream(upstream_pd, upstream_ca, upstream_cert, upstream_key)
    change |= {"target_ts": new.get("target_ts") or 0, "sink_uri": sink_uri or "", "replica_config": replica_config}
    info = client.update(changefeed_id, change, keyspace)
    echo("Update changefeed config successfully! ")
    _say_created(info, found, verbose, warning or "%!s(<nil>)")


@verb(app, "list")
def list_changefeeds(
    client: Client,
    everything: AllOption = False,
    keyspace: KeyspaceOption = "default",
) -> None:
    """List changefeeds."""
    found = client.changefeeds("all", keyspace)
    shown = [one for one in found if everything or one["state"] not in ("finished", "removed")]
    print_json(
        [
            {
                "id": one["id"],
                "keyspace": one.get("keyspace", keyspace),
                "summary": {
                    "state": one["state"],
                    "tso": one["checkpoint_tso"],
                    "checkpoint": one["checkpoint_time"],
                    "error": one.get("error"),
                },
            }
            for one in shown
        ]
    )


@verb(app, "query")
def query(
    client: Client,
    changefeed_id: IdOption,
    simple: Annotated[bool, typer.Option("--simple", "-s", help="Only state, checkpoint and error.")] = False,
    keyspace: KeyspaceOption = "default",
) -> None:
    """Show a changefeed."""
    if simple:
        for one in client.changefeeds("all", keyspace):
            if one["id"] == changefeed_id:
                names = ("upstream_id", "id", "keyspace", "state", "checkpoint_tso", "checkpoint_time", "error")
                print_json({name: one.get(name) for name in names})
                return
        raise made("CDC:ErrChangeFeedNotExists", f"changefeed not exists, {changefeed_id}", retryable=False)
    print_json(queried(client.changefeed(changefeed_id, keyspace)))


def queried(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the API's answer as `cdc cli changefeed query` prints it."""
    found = {
        "upstream_id": info.get("upstream_id", 0),
        "id": info["id"],
        "keyspace": info.get("keyspace", "default"),
        "sink_uri": info.get("sink_uri", ""),
        "config": info.get("config"),
        "create_time": cli_time(info["create_time"]),
        "start_ts": info.get("start_ts", 0),
        "resolved_ts": info["resolved_ts"],
        "target_ts": info.get("target_ts", 0),
        "checkpoint_tso": info["checkpoint_ts"],
        "checkpoint_time": info["checkpoint_time"],
        "sort_engine": info.get("sort_engine"),
        "state": info.get("state", ""),
        "error": info.get("error"),
        "error_history": info.get("error_history"),
        "creator_version": info.get("creator_version", ""),
        "task_status": info.get("task_status"),
    }
    omitted = ("sort_engine", "error", "error_history", "task_status")
    return {name: value for name, value in found.items() if value or name not in omitted}


@verb(app, "pause")
def pause(client: Client, changefeed_id: IdOption, keyspace: KeyspaceOption = "default") -> None:
    """Stop a changefeed at the end of its batch."""
    client.pause(changefeed_id, keyspace)


@verb(app, "resume")
def resume(
    client: Client,
    changefeed_id: IdOption,
    overwrite_checkpoint_ts: Annotated[str, typer.Option("--overwrite-checkpoint-ts", help="Go on from here: a TSO, or `now`.")] = "",
    no_confirm: NoConfirmOption = False,
    verbose: VerboseOption = False,
    keyspace: KeyspaceOption = "default",
    upstream_pd: UpstreamPd = None,
    upstream_ca: UpstreamCa = None,
    upstream_cert: UpstreamCert = None,
    upstream_key: UpstreamKey = None,
) -> None:
    """Go on with a changefeed, from its checkpoint."""
    info = client.changefeed(changefeed_id, keyspace)
    now_ms, logical = client.tso()
    overwrite = overwritten(overwrite_checkpoint_ts, tso.compose(now_ms, logical))
    if not no_confirm:
        if overwrite:
            confirm_overwrite(changefeed_id, overwrite)
        else:
            confirm_gap(now_ms, int(info["checkpoint_ts"]), "resume")
    cluster = upstream(upstream_pd, upstream_ca, upstream_cert, upstream_key)
    client.resume(changefeed_id, cluster | {"overwrite_checkpoint_ts": overwrite}, keyspace)


def overwritten(text: str, now: int) -> int:
    """Return what --overwrite-checkpoint-ts says; 0: nothing. Raises TiCDC's errors."""
    if not text:
        return 0
    if text.lower() == "now":
        return now
    if not text.isdecimal() or not 0 < int(text) < 1 << 64:
        said = f"invalid overwrite-checkpoint-ts {text}, overwrite-checkpoint-ts only accept 'now' or a valid timestamp in integer"
        raise made("CDC:ErrCliInvalidCheckpointTs", said, retryable=False)
    if int(text) > now:
        said = f"the overwrite-checkpoint-ts {text} must be smaller than current TSO"
        raise made("CDC:ErrCliCheckpointTsIsInFuture", said, retryable=False)
    return int(text)


@verb(app, "remove")
def remove(client: Client, changefeed_id: IdOption, keyspace: KeyspaceOption = "default") -> None:
    """Remove a changefeed. What it delivered stays."""
    try:
        info = client.changefeed(changefeed_id, keyspace)
        client.remove(changefeed_id, keyspace)
    except TidemillError as error:
        if error.code == "CDC:ErrChangeFeedNotExists":
            echo(f"Changefeed not found.\nID: {changefeed_id}")
            return
        echo(f"Changefeed remove failed.\nID: {changefeed_id}\nError: [{error.code}]{error.message}")
        raise
    echo(
        f"Changefeed remove successfully.\nID: {changefeed_id}\nCheckpointTs: {info['checkpoint_ts']}\nSinkURI: {info.get('sink_uri', '')}"
    )


@verb(app, "statistics")
def statistics(
    client: Client,
    changefeed_id: IdOption,
    interval: Annotated[int, typer.Option("--interval", "-I", min=1, help="Seconds between two lines.")] = 10,
    count: Annotated[int, typer.Option("--count", min=0, help="End after so many. 0: when it is interrupted.")] = 0,
    keyspace: KeyspaceOption = "default",
) -> None:
    """Print how far a changefeed is behind, again and again."""
    _repeat(lambda: _print_gaps(client, changefeed_id, keyspace), interval, count)


def _print_gaps(client: Client, changefeed_id: str, keyspace: str) -> None:
    info = client.changefeed(changefeed_id, keyspace)
    now_ms, _ = client.tso()
    checkpoint = tso.physical_ms(int(info["checkpoint_ts"]))
    resolved = tso.physical_ms(int(info["resolved_ts"]))
    print_json({"sink_gap": f"{resolved - checkpoint}ms", "replication_gap": f"{now_ms - checkpoint}ms"})


def _repeat(action: Callable[[], None], seconds: int, count: int) -> None:
    done = 0
    while True:
        action()
        done += 1
        if done == count:
            return
        time.sleep(seconds)


# ------------------------------------------------------------------ what is said


def _say_old_flags(sort_engine: str | None, tz: str | None) -> None:
    if tz not in (None, "SYSTEM"):
        echo("[WARN] --tz is deprecated in changefeed settings.")
    if sort_engine:
        echo("[WARN] --sort-engine is ignored: the change log is sorted when it is written.")


def _say_ineligible(found: Mapping[str, list[dict[str, Any]]], config: Mapping[str, Any], *, ask: bool) -> bool:
    """Tell of tables without a usable key. Return whether the user agrees to leave them out."""
    without_key = found["ineligible_tables"]
    if not without_key:
        return False
    names = table_names(without_key)
    if config.get("force_replicate"):
        echo(
            "[WARN] Force to replicate some ineligible tables, these tables do not have a primary key or a not-null unique key: "
            f"{names}\n[WARN] This may cause data redundancy, please refer to the official documentation for details."
        )
        return False
    echo(f"[WARN] Some tables are not eligible to replicate, because they do not have a primary key or a not-null unique key: {names}")
    if ask:
        confirm_ineligible()
    return ask


def _say_created(info: Mapping[str, Any], found: Mapping[str, list[Any]], verbose: bool, warning: str | None = None) -> None:
    echo(f"ID: {info['id']}\nInfo: {compact(info)}")
    for name, key in (("Ineligible", "ineligible_tables"), ("Eligible", "eligible_tables"), ("All", "all_tables")):
        echo(f"{name}TablesCount: {len(found[key])}")
    if warning is not None:
        echo(f"Warning: {warning}")
    if verbose:
        for name, key in (("Eligible", "eligible_tables"), ("Ineligible", "ineligible_tables"), ("All", "all_tables")):
            echo(f"{name}Tables: {table_names(found[key])}")


def _tables_of(client: Client, config: Mapping[str, Any], ts: int, keyspace: str) -> tuple[dict[str, list[dict[str, Any]]], str]:
    """Return the tables that a configuration selects, or why they cannot be listed: an update goes on without."""
    try:
        return client.verify_tables({"replica_config": config, "start_ts": ts}, keyspace), ""
    except TidemillError as error:
        return {"ineligible_tables": [], "eligible_tables": [], "all_tables": []}, f"[{error.code}]{error.message}"


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with the keys of another one put over it, table by table."""
    result = dict(old)
    for name, value in new.items():
        below = old.get(name)
        result[name] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return result


def diff(old: Any, new: Any, path: tuple[str, ...] = ()) -> list[str]:
    """Return a line for each value that differs, as TiCDC prints them."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        names = [*old, *(name for name in new if name not in old)]
        return [line for name in names for line in diff(old.get(name), new.get(name), (*path, name))]
    if old == new:
        return []
    kind = "create" if old is None else "delete" if new is None else "update"
    return [f"{{Type:{kind} Path:[{' '.join(path)}] From:{_said(old)} To:{_said(new)}}}"]


def _said(value: Any) -> str:
    return (
        "<nil>" if value is None else str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else compact(value)
    )
