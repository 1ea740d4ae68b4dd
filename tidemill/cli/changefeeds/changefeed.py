"""`tidemill changefeed`: changefeeds of a `tidemill server`, in short verbs; and resuming that of a `tidemill run`."""

from __future__ import annotations

import fcntl
import os
import re
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec

import typer

from tidemill import tso
from tidemill.cli.cdc.changefeeds import merged, overwritten
from tidemill.cli.cdc.client import Client
from tidemill.cli.cdc.commands import with_flags
from tidemill.cli.cdc.connection import Connection
from tidemill.cli.cdc.options import AllOption, ConfigOption, KeyspaceOption, RegistryOption
from tidemill.cli.cdc.output import print_json, table_names
from tidemill.cli.cdc.readable import print_list, print_one
from tidemill.cli.cdc.wanted import checked, in_sink, read_config, unmatched_rules
from tidemill.cli.shared.completion import changefeeds
from tidemill.cli.shared.feeds import DATA_DIR, choose
from tidemill.cli.shared.options import JsonOption, Output, OutputOption, SkipRowOption, form
from tidemill.cli.shared.terminal import echo
from tidemill.errors import ConfigError, TidemillError, UpstreamUnavailable
from tidemill.rules.skip import parse_skip_rows

if TYPE_CHECKING:  # with all protocols, or gRPC: only the commands that need them load them
    from tidemill.changefeed.feed_folder import FeedFolder
    from tidemill.cli.cdc.takeover import TakenOver

app = typer.Typer(no_args_is_help=True)
P = ParamSpec("P")

_PID = re.compile(r"[1-9][0-9]{0,8}")
_RUNS = ("normal", "warning")

NameArgument = Annotated[
    str | None, typer.Argument(metavar="[ID]", help="The changefeed. May be left out if there is one.", autocompletion=changefeeds)
]
NameOption = Annotated[str | None, typer.Option("--changefeed-id", "-c", help="The same as ID.", autocompletion=changefeeds)]
YesOption = Annotated[bool, typer.Option("--yes", "-y", "--no-confirm", help="Do not ask.")]
TsHelp = "a TSO, RFC 3339, now, -2h"


@app.callback()
def group() -> None:
    """Create, list, show, pause, resume, update and remove the changefeeds of a `tidemill server`."""


def _verb(name: str) -> Callable[[Callable[Concatenate[Client, P], None]], Any]:
    """Return a decorator that makes a command of a function whose first parameter is the client."""

    def made(function: Callable[Concatenate[Client, P], None]) -> Any:
        def call(connection: Connection, given: dict[str, Any]) -> None:
            with connection.client() as client:
                function(client, **given)  # type: ignore[call-arg]

        app.command(name)(with_flags(function, call))
        return function

    return made


@_verb("create")
def create(
    client: Client,
    name: Annotated[str | None, typer.Argument(metavar="[ID]", help="Its name. Default: a UUID, or TiCDC's name.")] = None,
    sink_uri: Annotated[str | None, typer.Option("--sink-uri", help="Where changes go.")] = None,
    config: ConfigOption = None,
    start_ts: Annotated[str | None, typer.Option("--start-ts", help=f"Deliver what comes after: {TsHelp}. Default: now.")] = None,
    target_ts: Annotated[str | None, typer.Option("--target-ts", help=f"End there: {TsHelp}.")] = None,
    schema_registry: RegistryOption = None,
    from_ticdc: Annotated[
        Path | None, typer.Option("--from-ticdc", help="Take a changefeed over: what `cdc cli changefeed query` printed.")
    ] = None,
    changefeed_id: NameOption = None,
    yes: YesOption = False,
    keyspace: KeyspaceOption = "default",
) -> None:
    """Create a changefeed and start it."""
    name = _one_name(name, changefeed_id)
    replica_config = read_config(config)
    now = tso.compose(*client.tso())
    start = tso.parse(start_ts, now) if start_ts is not None else 0
    target = tso.parse(target_ts, now) if target_ts is not None else 0
    if from_ticdc is not None:
        taken = _taken_over(from_ticdc, sink_uri, config, yes=yes)
        name, sink_uri = name or taken.changefeed_id, sink_uri or taken.sink_uri
        replica_config = replica_config or dict(taken.replica_config)
        start, target = start or taken.checkpoint_ts, target or taken.target_ts
    if not sink_uri:
        raise ConfigError("--sink-uri is missing", hint="Say where changes go, as in kafka://HOST:9092/TOPIC?protocol=canal-json.")
    replica_config = in_sink(replica_config, schema_registry=schema_registry)
    sink, file = checked(replica_config, sink_uri)
    for warning in (*file.warnings, *sink.warnings) if from_ticdc is None else ():
        echo(f"[WARN] {warning}", err=True)
    replica_config.setdefault("ignore_ineligible_table", True)
    wanted = {"changefeed_id": name or "", "sink_uri": sink_uri, "start_ts": start, "target_ts": target, "replica_config": replica_config}
    info = client.create(wanted, keyspace)
    echo(f"changefeed {info['id']} is created; it delivers what comes after {tso.describe(int(info['checkpoint_ts']))}")
    _say_doubts(client, replica_config, keyspace)
    if from_ticdc is not None:
        echo(
            "TiCDC holds back the cluster's garbage collection until its changefeed is removed: when this one delivers "
            f"(tidemill changefeed show {info['id']}), run `cdc cli changefeed remove -c {name}` there."
        )


def _say_doubts(client: Client, config: Mapping[str, Any], keyspace: str) -> None:
    """Name the rules that match no table, and the tables that a new changefeed does not replicate, because their rows cannot be told
    apart."""
    with suppress(TidemillError):  # the changefeed is there all the same, and its log names them
        tables = client.verify_tables({"replica_config": config}, keyspace)
        for warning in unmatched_rules(config, tables):
            echo(f"[WARN] {warning}", err=True)
        found = tables["ineligible_tables"]
        if found and not config.get("force_replicate"):
            text = "have no primary key and no unique key over NOT NULL columns, so they are not replicated (force-replicate = true would)"
            echo(f"[WARN] these tables {text}: {table_names(found)}", err=True)


def _taken_over(file: Path, sink_uri: str | None, config: Path | None, *, yes: bool) -> TakenOver:
    """Read TiCDC's changefeed. Raises ConfigError if something that TiCDC hides is not given."""
    from tidemill.cli.cdc import takeover

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--from-ticdc {file}: {error}") from None
    taken = takeover.read(text, f"--from-ticdc {file}")
    if not taken.uri_is_whole and sink_uri is None:
        raise ConfigError(f"--from-ticdc {file}: TiCDC hides secrets of the sink URI {taken.sink_uri}", hint="Give it whole by --sink-uri.")
    hidden = [place for place in taken.hidden if place != "sink_uri"]
    if hidden and config is None and sink_uri is None:
        raise ConfigError(
            f"--from-ticdc {file}: TiCDC hides {', '.join(hidden)}",
            hint="Give these by --config, the file that the changefeed was created with, or in --sink-uri.",
        )
    if taken.state in takeover.STILL_RUNS and not yes:
        echo(
            f"In TiCDC the changefeed was {taken.state or 'normal'} when {file} was written. What it delivers from then on is delivered "
            f"again. Pause it there first: cdc cli changefeed pause -c {taken.changefeed_id}"
        )
        _agree("Take it over from this checkpoint all the same?")
    return taken


@_verb("list")
def list_changefeeds(
    client: Client,
    everything: AllOption = False,
    output: OutputOption = Output.TEXT,
    as_json: JsonOption = False,
    keyspace: KeyspaceOption = "default",
) -> None:
    """List the changefeeds."""
    found = [one for one in client.changefeeds("all", keyspace) if everything or one["state"] not in ("finished", "removed")]
    if form(output, as_json) is Output.JSON:
        print_json(found)
    else:
        print_list(found, tso.compose(*client.tso()))


@_verb("show")
def show(
    client: Client,
    name: NameArgument = None,
    changefeed_id: NameOption = None,
    as_toml: Annotated[bool, typer.Option("--toml", help="Print the configuration alone, as a file for --config.")] = False,
    output: OutputOption = Output.TEXT,
    as_json: JsonOption = False,
    keyspace: KeyspaceOption = "default",
) -> None:
    """Show a changefeed: state, error, checkpoint, sink, configuration."""
    info = client.changefeed(_which(client, _one_name(name, changefeed_id), keyspace), keyspace)
    if as_toml:
        from tidemill.config.replica_config import from_json, without_defaults
        from tidemill.config.toml_text import toml_text

        echo(toml_text(without_defaults(from_json(info.get("config") or {}))), nl=False)
    elif form(output, as_json) is Output.JSON:
        print_json(info)
    else:
        print_one(info, tso.compose(*client.tso()))


@_verb("pause")
def pause(client: Client, name: NameArgument = None, changefeed_id: NameOption = None, keyspace: KeyspaceOption = "default") -> None:
    """Stop a changefeed at the end of its batch."""
    name = _which(client, _one_name(name, changefeed_id), keyspace)
    client.pause(name, keyspace)
    echo(f"changefeed {name} is paused")


@_verb("update")
def update(
    client: Client,
    name: NameArgument = None,
    sink_uri: Annotated[str | None, typer.Option("--sink-uri", help="Where changes go from now on.")] = None,
    config: ConfigOption = None,
    target_ts: Annotated[str | None, typer.Option("--target-ts", help=f"End there: {TsHelp}.")] = None,
    schema_registry: RegistryOption = None,
    changefeed_id: NameOption = None,
    yes: YesOption = False,
    keyspace: KeyspaceOption = "default",
) -> None:
    """Change a changefeed. One that runs is paused, changed and resumed. --config replaces the keys that the file has."""
    from tidemill.changefeed import changes

    name = _which(client, _one_name(name, changefeed_id), keyspace)
    old = client.changefeed(name, keyspace)
    new_config = merged(old.get("config") or {}, read_config(config))
    new_config = in_sink(new_config, schema_registry=schema_registry)
    target = tso.parse(target_ts, tso.compose(*client.tso())) if target_ts is not None else 0
    before = checked(old.get("config") or {}, old["sink_uri"])
    found = changes.changes(before, checked(new_config, sink_uri or old["sink_uri"]))
    if target:
        found.append(changes.Change("target-ts", str(old.get("target_ts") or ""), str(target)))
    if not found:
        echo(f"nothing of changefeed {name} changes")
        return
    if never := changes.refused(found):
        raise ConfigError(
            f"changefeed {name} cannot change: " + "; ".join(f"{one.setting}, {one.old} → {one.new}" for one in never),
            hint=f"{never[0].rule.why}.",
        )
    for change in found:
        echo(str(change))
    if not yes:
        _agree(f"Change changefeed {name}?")
    runs = old.get("state") in _RUNS
    if runs:
        client.pause(name, keyspace)
    try:
        client.update(name, {"sink_uri": sink_uri or "", "target_ts": target, "replica_config": new_config}, keyspace)
    finally:
        if runs:
            client.resume(name, {}, keyspace)
    echo(f"changefeed {name} is changed{' and goes on' if runs else '. Resume it: tidemill changefeed resume ' + name}")


@_verb("remove")
def remove(
    client: Client,
    name: Annotated[str | None, typer.Argument(metavar="ID", help="The changefeed.", autocompletion=changefeeds)] = None,
    changefeed_id: NameOption = None,
    yes: YesOption = False,
    keyspace: KeyspaceOption = "default",
) -> None:
    """Remove a changefeed. What it delivered stays; its checkpoint is printed, so that another one can go on from there."""
    name = _one_name(name, changefeed_id)
    if name is None:
        raise ConfigError("the changefeed to remove is not named", hint="tidemill changefeed list shows all.")
    info = client.changefeed(name, keyspace)
    if not yes:
        _agree(f"Remove changefeed {name}, whose checkpoint is {tso.describe(int(info['checkpoint_ts']))}?")
    client.remove(name, keyspace)
    echo(f"changefeed {name} is removed. Everything up to {tso.describe(int(info['checkpoint_ts']))} is delivered")


def resume(
    _: None,
    connection: Connection,
    name: NameArgument = None,
    overwrite_checkpoint_ts: Annotated[
        str | None, typer.Option("--overwrite-checkpoint-ts", help=f"Go on from here, not from the checkpoint: {TsHelp}.")
    ] = None,
    skip_row: SkipRowOption = None,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", help="For a `tidemill run`: as it was given there. Default: tidemill-data, if one runs there."),
    ] = None,
    changefeed_id: NameOption = None,
    yes: YesOption = False,
    keyspace: KeyspaceOption = "default",
) -> None:
    """Resume a changefeed that was paused, failed, or waits for its next attempt. It goes on from its checkpoint at once.

    --skip-row leaves out a row that no sink can take, as the error about it names it; what is normal has to be paused first.

    That of a `tidemill run` (--data-dir): on the machine where it runs, also where --state is a URL, because it is sent SIGUSR1. To resume
    with another command line (a new password, a --skip-row), stop the run and start it again with the new one.
    """
    name = _one_name(name, changefeed_id)
    if data_dir is not None or (connection.server is None and _runs_here(name)):
        if skip_row:
            raise ConfigError("--skip-row here is for changefeeds of a server", hint="Stop the run, and start it again with --skip-row.")
        _resume_run(data_dir or DATA_DIR, name)
        return
    rows = [str(row) for row in parse_skip_rows(skip_row or ())]
    with connection.client() as client:
        name = _which(client, name, keyspace)
        overwrite = 0
        if overwrite_checkpoint_ts is not None:
            now = tso.compose(*client.tso())
            overwrite = overwritten(str(tso.parse(overwrite_checkpoint_ts, now)), now)
            if not yes:
                _agree(f"Go on from {tso.describe(overwrite)}? What lies between it and the checkpoint is skipped, or delivered again.")
        client.resume(name, {"overwrite_checkpoint_ts": overwrite} | ({"skip_rows": rows} if rows else {}), keyspace)
        echo(f"changefeed {name} goes on")


app.command("resume")(with_flags(resume, lambda connection, given: resume(None, connection, **given), given=("connection",)))


def _runs_here(name: str | None) -> bool:
    """Whether a `tidemill run` has this changefeed (None: any) in the data directory that is taken by default."""
    if not DATA_DIR.is_dir():
        return False
    from tidemill.changefeed.feed_folder import FeedFolder

    folders = [DATA_DIR / "changefeeds" / name] if name is not None else [*DATA_DIR.glob("changefeeds/*")]
    return any(keeper_of(FeedFolder(DATA_DIR, folder.name)) is not None for folder in folders if folder.is_dir())


def _resume_run(data_dir: Path, name: str | None) -> None:
    from tidemill.changefeed.feed_folder import FeedFolder

    folder = FeedFolder(data_dir, choose(data_dir, name))
    pid = keeper_of(folder)
    if pid is None:
        raise UpstreamUnavailable(
            f"no `tidemill run` is running for changefeed {folder.changefeed} of {data_dir}", hint="Start `tidemill run` again: it resumes."
        )
    try:
        os.kill(pid, signal.SIGUSR1)
    except PermissionError:
        raise ConfigError(f"process {pid} of `tidemill run` is another user's", hint=f"As that user: kill -USR1 {pid}") from None
    echo(f"process {pid} resumes changefeed {folder.changefeed}: see `tidemill status --data-dir {data_dir}`")


def keeper_of(folder: FeedFolder) -> int | None:
    """The process id of the `tidemill run` of a changefeed, which holds its lock; None if none runs."""
    try:
        with open(folder.path / "run.lock", encoding="ascii", errors="replace") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                text = file.read().strip()
                return int(text) if _PID.fullmatch(text) else None
    except FileNotFoundError:
        pass
    return None


def _one_name(argument: str | None, option: str | None) -> str | None:
    """Return the name that is given, once or twice. Raises ConfigError."""
    if argument is not None and option is not None and argument != option:
        raise ConfigError(f"two changefeeds are named: {argument} and {option}")
    return argument if argument is not None else option


def _which(client: Client, name: str | None, keyspace: str) -> str:
    """Return the changefeed that is meant: the one that is named, or the only one. Raises ConfigError."""
    if name is not None:
        return name
    found = [str(one["id"]) for one in client.changefeeds("all", keyspace)]
    if len(found) != 1:
        raise ConfigError(
            f"the server has {len(found)} changefeeds{': ' + ', '.join(found[:10]) if found else ''}",
            hint="Name one." if found else "Create one: tidemill changefeed create --sink-uri …",
        )
    return found[0]


def _agree(question: str) -> None:
    """Ask. Ends the command with 1 unless the answer is y."""
    if not typer.confirm(question):
        raise typer.Exit(1)
