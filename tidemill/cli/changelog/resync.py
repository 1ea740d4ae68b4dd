"""`tidemill resync`: read one table again, in the middle of a running feed."""

from __future__ import annotations

import signal
import time
import uuid
from typing import Annotated

import typer

from tidemill import tso
from tidemill.capture.initial_load import answered, ask
from tidemill.changelog import initial_load
from tidemill.changelog.ownership import check_free
from tidemill.changelog.reader import LogReader
from tidemill.cli.shared import completion
from tidemill.cli.shared.terminal import echo
from tidemill.errors import LogError, LogLocked, UpstreamUnavailable, redact

POLL_S = 0.5


def command(
    log: Annotated[
        str, typer.Option("--log", envvar="TIDEMILL_LOG", help="Folder or URL of the change log; its capture has to be running.")
    ],
    table: Annotated[str, typer.Option("--table", help="DATABASE.TABLE.", autocompletion=completion.tables)],
    wait: Annotated[int, typer.Option("--wait", min=1, help="Seconds to wait for the capture's answer.")] = 60,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until all rows are in the log.")] = False,
) -> None:
    """Read all rows of a table again and deliver them as inserts, while capture and changefeeds run.

    The rows are read as of one ts. Every changefeed of the log that replicates the table delivers them at that ts: after all earlier
    changes, before all later ones. Rows that are only downstream are not removed.
    """
    if table.count(".") < 1:
        raise typer.BadParameter("--table wants DATABASE.TABLE")
    reader = LogReader(log)
    _check_capture(reader)
    name = uuid.uuid4().hex[:12]
    ask(reader.storage, name, table)
    until = time.monotonic() + wait
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the request is taken back then, too
    try:
        while (answer := answered(reader.storage, name)) is None:
            if time.monotonic() > until:
                raise UpstreamUnavailable(
                    f"no capture of {redact(reader.location)} has answered within {wait} s",
                    hint="Is `tidemill run` or `tidemill capture` up?",
                )
            time.sleep(POLL_S)
    finally:
        reader.storage.delete(f"{initial_load.REQUESTS}/{name}.json")
    if "error" in answer:
        raise LogError(f"{table} cannot be read again: {answer['error']}")
    ts: int = answer["ts"]
    plan = initial_load.read_plan(reader.storage, ts)
    parts = len(plan.parts()) if plan is not None else 0
    echo(f"{table} is read again at {tso.describe(ts)}, in {parts} parts")
    if plan is None or no_wait:
        return
    while left := len(initial_load.missing(reader.storage, plan)):
        time.sleep(POLL_S)
        _check_capture(reader)
        if reader.storage.read(f"{initial_load.folder_of(ts)}/{initial_load.PLAN}") is None:
            raise LogError(f"the plan to read {table} again was removed with {left} parts to go")
    echo("all of it is in the log")


def _check_capture(reader: LogReader) -> None:
    """Raises UpstreamUnavailable if no capture writes a local log: the request would have no answer."""
    if not reader.storage.local:
        return
    try:
        check_free(reader.storage)
    except LogLocked:
        return
    raise UpstreamUnavailable(
        f"no capture writes {redact(reader.location)} now",
        hint="Start `tidemill run` or `tidemill capture`; a table that is planned already is read then.",
    )
