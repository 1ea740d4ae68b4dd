"""`tidemill lake`: look at the tables that a delta:// or iceberg:// sink has written, check them, remove what nobody reads."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from tidemill import tso
from tidemill.cli.shared.options import JsonOption, Output, OutputOption, form
from tidemill.cli.shared.terminal import add_row, console, echo

app = typer.Typer(help="Look at the tables of a lake, check and clean them.", no_args_is_help=True)

PlaceArgument = Annotated[str, typer.Argument(metavar="PLACE", help="The folder of the tables, or their sink URI.")]
AtOption = Annotated[str, typer.Option("--at", help='The moment: "latest", a TSO, RFC 3339, -2h.')]


@app.callback()
def _lake() -> None:
    """Look at the tables of a lake, check and clean them."""


@app.command("show")
def show(place: PlaceArgument, at: AtOption = "latest", output: OutputOption = Output.TEXT, as_json: JsonOption = False) -> None:
    """List the tables at one resolved ts, with their versions, rows and files."""
    from tidemill.sinks.lake.care import listed

    moment, found = listed(place, _ts(at))
    if form(output, as_json) is Output.JSON:
        echo(json.dumps({"resolved_ts": moment, "tables": found}, indent=2))
        return
    echo(f"resolved ts {tso.describe(moment)}")
    columns = ("schema", "table", "version", "rows", "files", "bytes")
    table = Table(*columns, box=None, pad_edge=False)
    for entry in found:
        add_row(table, (entry[name] for name in columns))
    console().print(table)


@app.command("verify")
def verify(place: PlaceArgument, whole: Annotated[bool, typer.Option("--all", help="All manifests, not only the newest.")] = False) -> None:
    """Check that each version that a manifest names is there with all of its files. Ends with 1 if one is not."""
    from tidemill.sinks.lake.care import verified

    checked, problems = verified(place, whole=whole)
    for problem in problems:
        echo(problem)
    echo(f"{checked} table versions checked, {len(problems)} problems")
    if problems:
        raise typer.Exit(1)


@app.command("vacuum")
def vacuum(
    place: PlaceArgument,
    retention: Annotated[str, typer.Option("--retention", help="What is younger stays readable: 168h, 7d.")] = "168h",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
) -> None:
    """Remove manifests that are older than the retention, and data files that no younger version has. The newest manifest always stays."""
    from tidemill.sinks.lake.care import vacuumed

    manifests, files = vacuumed(place, _hours(retention), dry_run=dry_run)
    word = "would be removed" if dry_run else "removed"
    echo(f"{manifests} manifests and {files} data files {word}")


def _ts(text: str) -> int | None:
    return None if text == "latest" else tso.parse(text)


def _hours(text: str) -> float:
    units = {"h": 1.0, "d": 24.0, "m": 1 / 60}
    try:
        hours = float(text[:-1]) * units[text[-1:]]
    except (KeyError, ValueError):
        raise typer.BadParameter(f"{text!r} is not a duration such as 168h or 7d") from None
    if hours < 0:
        raise typer.BadParameter("a retention is not negative")
    return hours
