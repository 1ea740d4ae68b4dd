"""`tidemill journal FILE`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(file: Annotated[Path, typer.Argument(help="A file that the sink journal:// has written.")]) -> None:
    """Count the lines of a journal by topic and partition."""
    counts: dict[str, int] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        target = line.split(" ", 2)[1]
        counts[target] = counts.get(target, 0) + 1
    for target, count in sorted(counts.items()):
        typer.echo(f"{target}: {count}")
