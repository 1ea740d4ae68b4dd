"""`tidemill changefeed`: resume a changefeed of a running `tidemill run`."""

from __future__ import annotations

import fcntl
import os
import re
import signal
from pathlib import Path
from typing import Annotated

import typer

from tidemill.changefeed.feed_folder import FeedFolder
from tidemill.cli.feeds import DATA_DIR, choose
from tidemill.errors import ConfigError, UpstreamUnavailable

app = typer.Typer(no_args_is_help=True)

_PID = re.compile(r"[1-9][0-9]{0,8}")


@app.callback()
def group() -> None:
    """Resume a changefeed that failed."""


@app.command()
def resume(
    data_dir: Annotated[Path, typer.Option("--data-dir", help="As it was given to `tidemill run`.")] = DATA_DIR,
    changefeed_id: Annotated[
        str | None, typer.Option("--changefeed-id", "-c", help="Which changefeed, if the data directory has several.")
    ] = None,
) -> None:
    """Resume a changefeed that failed or waits for its next attempt. It goes on from its checkpoint at once.

    Run it on the machine of `tidemill run`, also where --state is a URL: it sends that process SIGUSR1. To resume with another command
    line (a new password, a --skip-row), stop the run and start it again with the new one.
    """
    folder = FeedFolder(data_dir, choose(data_dir, changefeed_id))
    pid = keeper_of(folder)
    if pid is None:
        raise UpstreamUnavailable(
            f"no `tidemill run` is running for changefeed {folder.changefeed} of {data_dir}", hint="Start `tidemill run` again: it resumes."
        )
    try:
        os.kill(pid, signal.SIGUSR1)
    except PermissionError:
        raise ConfigError(f"process {pid} of `tidemill run` is another user's", hint=f"As that user: kill -USR1 {pid}") from None
    typer.echo(f"process {pid} resumes changefeed {folder.changefeed}: see `tidemill status --data-dir {data_dir}`")


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
