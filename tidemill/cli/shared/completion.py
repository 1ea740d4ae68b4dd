"""What a shell is told when Tab is pressed: names of changefeeds, from the server, and of tables, from a log.

A server is asked for a second at most, nothing is printed, and whatever fails leaves the shell without names.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import typer

from tidemill.errors import TidemillError

VARIABLE = "_TIDEMILL_COMPLETE"
"""Set by the shell's function, to `complete_bash` and the like."""
_WORDS = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
SERVER_S = 1.0
LOG_S = 3.0
"""How long a server is asked, and a log is read, whose schemas are on the way."""


def words() -> list[str]:
    """The words behind `tidemill` on the line that a shell completes; none where no shell asks."""
    if VARIABLE not in os.environ:
        return []
    line = next((os.environ[name] for name in _WORDS if name in os.environ), "")
    try:
        return shlex.split(line)[1:]
    except ValueError:  # a quote that is not closed yet
        return line.split()[1:]


def changefeeds(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of the changefeeds of the server that --server names, that begin so."""
    from tidemill.cli.cdc.connection import OPTIONS, Connection

    given = _given(ctx)
    connection = Connection.of({name: given.get(name) for name in OPTIONS})

    def ask() -> list[str]:
        with connection.client(asks=False) as client:
            return [str(one.get("id")) for one in client.changefeeds()]

    return _within(SERVER_S, ask, incomplete)


def tables(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of the tables of the log that --log names, that begin so."""
    from tidemill.changelog.history import load_history
    from tidemill.changelog.reader import LogReader

    given = _given(ctx)
    place = given.get("log") or given.get("log_place") or _argument(ctx) or os.environ.get("TIDEMILL_LOG")

    def ask() -> list[str]:
        reader = LogReader(str(place))
        ts = reader.resolved_ts()
        found = load_history(reader, from_ts=ts, may_stop=True).snapshot(ts).tables.values()
        return sorted(".".join(version.name) for version in found if version.info.has_rows)

    return _within(LOG_S, ask, incomplete) if place else []


def _within(seconds: float, ask: Callable[[], list[str]], incomplete: str) -> list[str]:
    """The names that begin so. A thread asks, which the process does not wait for when it ends."""
    found: list[str] = []

    def note() -> None:
        with suppress(TidemillError, OSError, ValueError):
            found.extend(ask())

    asking = threading.Thread(target=note, daemon=True)
    asking.start()
    asking.join(seconds)
    return [name for name in found if name.startswith(incomplete)]


def _argument(ctx: Any) -> str | None:
    """The argument of a command, which is not read yet while the value of an option is still missing."""
    depth = 0
    while ctx.parent is not None:
        depth, ctx = depth + 1, ctx.parent
    return next((word for word in words()[depth:] if not word.startswith("-")), None)


def _given(ctx: Any) -> dict[str, Any]:
    """What was given so far, to the command and to the groups before it."""
    found = dict(_given(ctx.parent)) if ctx.parent is not None else {}
    return found | {name: value for name, value in ctx.params.items() if value is not None}
