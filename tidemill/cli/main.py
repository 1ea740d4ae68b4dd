"""The command line: `tidemill VERB …`. One file a verb; only the verb that runs is imported, so that starting stays quick."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from tidemill import plugins
from tidemill.cli.shared import completion
from tidemill.cli.shared.help import Group, dress
from tidemill.errors import TidemillError
from tidemill.process import lifeline
from tidemill.process.ending import fail, fail_of_system
from tidemill.process.lifeline import SUPERVISED
from tidemill.process.loading import loading
from tidemill.process.program import quiet, set_umask

VERBS = {
    "doctor": "Check machine, cluster, log and sink, with a remedy for what is wrong.",
    "demo": "Run everything on an embedded TiDB upstream, and compare what was delivered with its tables.",
    "run": "Capture a TiDB cluster and deliver its changes to a sink, until stopped.",
    "server": "Capture a TiDB cluster once, for any number of changefeeds, with TiCDC's HTTP API.",
    "capture": "Capture a TiDB cluster into a change log, without delivering.",
    "canal": "Serve an entry store to Canal's clients.",
    "drainer": "Merge the binlogs of all Pumps, and write them in the Drainer's forms.",
    "pump": "Take binlogs from TiDB up to 8.3, keep them, and give them to Drainers in commit order.",
    "reparo": "Bring what a Drainer wrote into files back into a database, or print it.",
    "binlogctl": "Look at Pumps and Drainers of TiDB-Binlog, pause them, take them offline, and wait for them.",
    "consume": "Read the topics of a changefeed, and write them into tables or another sink.",
    "show": "Show the changes in a topic or in files, one a line.",
    "replay": "Deliver the content of a change log to a sink, then end.",
    "view": "Queries over captured tables that are kept up to date, always as of one resolved ts.",
    "lake": "List, verify and vacuum the tables that a delta:// sink has written.",
    "diff": "Compare the upstream's tables with a downstream's, and write the SQL that repairs it.",
    "redo": "Bring a downstream that died with its changefeed to the last resolved ts of the change log.",
    "resync": "Read one table again while its capture runs.",
    "config": "Check a changefeed's configuration, and explain each setting.",
    "changefeed": "Create, list, show, pause, resume, update and remove changefeeds of a server.",
    "cli": "The same with TiCDC's words: what `cdc cli` does, against a server.",
    "status": "Show how far a capture and its changefeed are, and what holds them back.",
    "top": "Show what a server and its changefeeds do, live in a terminal.",
    "metrics": "Print a Grafana dashboard, and alert rules for Prometheus.",
    "tables": "List the tables of a cluster, and which of them have a usable key.",
    "log": "Look at, verify and maintain a change log.",
    "verify": "Check topics that were written against the guarantees of their protocol.",
    "playground": "An embedded TiDB upstream: serve, change and query it.",
    "decode": "Explain a key, a row value or a message.",
    "tso": "Explain a timestamp.",
    "version": "Print the version.",
}
"""Every verb and what it does. A verb is a module with `command` (one command) or `app` (a group)."""

_ROOMS = {
    "changefeeds": "run server changefeed cli status top config replay redo",
    "changelog": "capture log resync tables",
    "downstream": "consume show verify lake diff",
    "views": "view",
    "canal": "canal",
    "binlog": "pump drainer reparo binlogctl",
    "playground": "playground demo",
    "inspect": "decode tso doctor metrics",
}
PANELS = {
    "First": "doctor demo playground",
    "Deliver": "run server capture canal consume replay view",
    "Changefeeds": "changefeed cli config",
    "Look and watch": "status top show tables log metrics",
    "Check and repair": "diff verify redo resync lake",
    "Explain": "decode tso",
    "TiDB-Binlog": "pump drainer binlogctl reparo",
}
_PANEL_OF = {verb: panel for panel, verbs in PANELS.items() for verb in verbs.split()}
_ROOM_OF = {verb: room for room, verbs in _ROOMS.items() for verb in verbs.split()}


def _placeholder() -> None:
    raise AssertionError("only the verb that was asked for is run")


def _print_version() -> None:
    try:
        typer.echo(version("tidemill"))
    except PackageNotFoundError:
        typer.echo("unknown (not installed)")


def _version_asked(asked: bool) -> None:
    if asked:
        _print_version()
        raise typer.Exit


def _asked_for(arguments: list[str]) -> str | None:
    return next((a for a in arguments if not a.startswith("-")), None)


def build(arguments: list[str]) -> typer.Typer:
    """The application with the verb of these arguments loaded and the other verbs as names with their help."""
    app = typer.Typer(
        cls=Group,
        help="Change data capture for TiDB on Spark.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    asked = _asked_for(arguments)
    for verb in (*_PANEL_OF, "version"):
        text, panel = VERBS[verb], _PANEL_OF.get(verb)
        if verb == "version":
            app.command(verb, help=text, hidden=True)(_print_version)  # --version is shown
        elif verb != asked:
            app.command(verb, help=text, rich_help_panel=panel)(_placeholder)
        else:
            _load(app, verb, text)
    if asked not in VERBS:
        _add_brought(app, asked)
    app.callback()(_group)
    dress(app)
    return app


def _add_brought(app: typer.Typer, asked: str | None) -> None:
    """Add the verbs that other packages bring: the one that is asked for, or, for the help, the names of all."""
    for verb, point in plugins.offered(plugins.COMMANDS, frozenset(VERBS)).items():
        about = f"From the package {plugins.package_of(point)}."
        found = plugins.load(point) if verb == asked else _placeholder
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=verb)
        else:
            app.command(verb, help=found.__doc__ or about)(found)


def _group(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version_asked)] = False,
) -> None:
    """Change data capture for TiDB on Spark."""


def module_of(verb: str) -> str:
    """The module of a verb."""
    return f"tidemill.cli.{_ROOM_OF[verb]}.{verb}"


def _load(app: typer.Typer, verb: str, text: str) -> None:
    module = importlib.import_module(module_of(verb))
    group: typer.Typer | None = getattr(module, "app", None)
    if group is not None:
        runs_alone = group.info.invoke_without_command is True  # such as `playground`, which has verbs of its own as well
        app.add_typer(group, name=verb, help=text, no_args_is_help=not runs_alone)
        return
    command: Callable[..., None] = module.command
    app.command(verb, help=command.__doc__ or text, context_settings=getattr(module, "CONTEXT", None))(command)


def main(arguments: list[str] | None = None) -> None:
    """Entry point. A TidemillError ends with 1 and `Error CODE: message`, wrong usage with 2."""
    is_library = arguments is not None
    arguments = sys.argv[1:] if arguments is None else arguments
    quiet()
    try:
        if not is_library:
            set_umask()
        if SUPERVISED in os.environ:
            lifeline.hold(heard=lifeline.take_level)
        with nullcontext() if is_library else loading():
            app = build(completion.words() or arguments)
        app(args=arguments, prog_name="tidemill")
    except TidemillError as error:
        fail(error)
    except OSError as error:
        fail_of_system(error)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
