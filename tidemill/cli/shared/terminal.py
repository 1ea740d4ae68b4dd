"""What the command line prints. Names and texts come from databases and other programs, so all of it passes here: escapes for what a
terminal acts upon, and no markup of rich in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from tidemill.visible import one_line, printable

if TYPE_CHECKING:  # rich takes longer to import than most verbs to print their lines
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text; `err`: to stderr."""
    typer.echo(printable(str(text)), err=err, nl=nl)


def console(*, stderr: bool = False, width: int | None = None, wraps: bool = False) -> Console:
    """Return a console that takes no markup, and breaks no line unless `wraps`."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=not wraps, markup=False, emoji=False, stderr=stderr, width=width)


def cell(text: object, style: str = "") -> Text:
    """Return a text as part of a line or as a cell of a table."""
    from rich.text import Text

    return Text(one_line(str(text)), style=style)


def add_row(table: Table, texts: Iterable[object]) -> None:
    """Add a row of texts to a table."""
    table.add_row(*map(cell, texts))
