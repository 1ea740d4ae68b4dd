"""What TiCDC's command line prints, and asks. JSON is indented by two spaces, as `cdc cli` does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from tidemill import tso
from tidemill.cli.shared.terminal import echo
from tidemill.errors import TidemillError

DAY_MS = 86_400_000


class Aborted(TidemillError):
    """The user has said no. TiCDC's command line ends with 0."""

    code = "CDC:ErrCliAborted"


def print_json(value: Any) -> None:
    """Print a value as Go's MarshalIndent writes it."""
    echo(json.dumps(value, indent=2, ensure_ascii=False))


def compact(value: Any) -> str:
    """Return a value as Go's Marshal writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def read_yes() -> bool:
    """Read a word from the terminal, and return whether it is `y`."""
    try:
        return input().strip().lower() == "y"
    except EOFError:
        echo("Received invalid input: EOF, abort the command.")
        return False


def confirm_gap(now_ms: int, start_ts: int, command: str) -> None:
    """Ask whether to go on from more than a day ago. Raises Aborted."""
    gap = now_ms - tso.physical_ms(start_ts)
    if gap > DAY_MS:
        echo(
            f"Replicate lag ({go_duration(gap)}) is larger than 1 days, "
            "large data may cause OOM, confirm to continue at your own risk [Y/N]"
        )
        if not read_yes():
            echo(f"Abort changefeed {command}.")
            raise Aborted(f"command 'cli changefeed {command}' is aborted by user")


def confirm_overwrite(changefeed_id: str, checkpoint_ts: int) -> None:
    """Ask whether to move a checkpoint. Raises Aborted."""
    echo(
        f"You are overwriting the checkpoint of changefeed({changefeed_id}) to {checkpoint_ts}, which may lead to data loss or data "
        "duplication.\nConfirm that you know what this command will do and use it at your own risk [Y/N]",
        nl=False,
    )
    if not read_yes():
        echo("Abort changefeed resume.")
        raise Aborted("command 'cli changefeed resume' is aborted by user")


def confirm_ineligible() -> None:
    """Ask whether to leave out tables without a usable key. Raises Aborted."""
    echo(
        "Could you agree to ignore those tables, and continue to replicate [Y/N]\n"
        "Note: If you don't want to ignore those tables, please set `force-replicate to` true in the changefeed config file."
    )
    if not read_yes():
        echo("No changefeed is created because you don't want to ignore some tables.")
        raise Aborted("command 'cli changefeed create' is aborted by user")


def table_names(tables: Iterable[Mapping[str, Any]]) -> str:
    """Return `[a.b, c.d]`."""
    return f"[{', '.join('.'.join(filter(None, (one['database_name'], one['table_name']))) for one in tables)}]"


def go_duration(milliseconds: int) -> str:
    """Return a duration as Go prints it: `48h0m0s`, `1m0.5s`, `250ms`."""
    if abs(milliseconds) < 1000:
        return f"{milliseconds}ms" if milliseconds else "0s"
    sign, rest = ("-" if milliseconds < 0 else ""), abs(milliseconds)
    hours, rest = divmod(rest, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    seconds = f"{rest // 1000}" + (f".{rest % 1000:03d}".rstrip("0") if rest % 1000 else "")
    return sign + (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + f"{seconds}s"


def cli_time(text: str) -> str:
    """Return an RFC 3339 time as `2006-01-02 15:04:05.000`."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}"
