"""`tidemill changefeed`: what a person may ask of a changefeed that a `tidemill run` keeps."""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from tidemill.changefeed.checkpoint import FeedFolder
from tidemill.cli.feeds import DATA_DIR, choose
from tidemill.errors import ConfigError, UpstreamUnavailable

app = typer.Typer(no_args_is_help=True)


@app.callback()
def group() -> None:
    """What a person may ask of a changefeed that a `tidemill run` keeps."""


@app.command()
def resume(
    data_dir: Annotated[Path, typer.Option("--data-dir", help="As it was given to `tidemill run`.")] = DATA_DIR,
    changefeed_id: Annotated[str | None, typer.Option("--changefeed-id", "-c", help="Where DIR has several.")] = None,
) -> None:
    """Let a changefeed that failed, or that waits for its next try, go on from its checkpoint at once; its capture never stopped.

    The same as SIGUSR1 to the process of `tidemill run`. With another command line (a new password, another broker) stop the run and start
    it so: it resumes as well.
    """
    folder = FeedFolder(data_dir, choose(data_dir, changefeed_id))
    pid = keeper_of(folder)
    if pid is None:
        raise UpstreamUnavailable(
            f"no `tidemill run` keeps changefeed {folder.changefeed} of {data_dir}", hint="Start `tidemill run` again: it resumes."
        )
    try:
        os.kill(pid, signal.SIGUSR1)
    except PermissionError:
        raise ConfigError(f"process {pid} of `tidemill run` is another user's", hint=f"As that user: kill -USR1 {pid}") from None
    typer.echo(f"process {pid} resumes changefeed {folder.changefeed}: see `tidemill status --data-dir {data_dir}`")


def keeper_of(folder: FeedFolder) -> int | None:
    """The process of the `tidemill run` that keeps a changefeed: it holds the lock that names it."""
    try:
        with open(folder.path / "run.lock", encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                text = file.read().strip()
                return int(text) if text.isdecimal() else None
    except FileNotFoundError:
        pass
    return None
