"""`tidemill cli`: what `cdc cli` does, with its words."""

from __future__ import annotations

import typer

from tidemill.cli.cdc import changefeeds, others
from tidemill.cli.cdc.commands import Group, group_callback

app = typer.Typer(cls=Group, no_args_is_help=True)
app.callback()(group_callback())
app.add_typer(changefeeds.app, name="changefeed")
app.add_typer(others.capture, name="capture")
app.add_typer(others.processor, name="processor")
app.add_typer(others.tso, name="tso")
app.add_typer(others.unsafe, name="unsafe", hidden=True)
