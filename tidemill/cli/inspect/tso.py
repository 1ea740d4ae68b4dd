"""`tidemill tso VALUE`: what a timestamp means."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from tidemill import tso
from tidemill.cli.shared.terminal import echo

CONTEXT = {"ignore_unknown_options": True, "help_option_names": ["--help"]}  # so that -2h is a value


def command(
    value: Annotated[
        str, typer.Argument(help="A TSO number, an RFC 3339 time, `now` or a distance such as -2h (from this machine's clock).")
    ],
) -> None:
    """Explain a timestamp: its number, its time in UTC and in the local zone, its physical and logical parts."""
    now = tso.compose(time.time_ns() // 1_000_000)
    ts = tso.parse(value, now)
    moment = tso.when(ts)
    echo(f"tso       {ts}")
    echo(f"utc       {moment:%Y-%m-%dT%H:%M:%S}.{tso.physical_ms(ts) % 1000:03d}Z")
    echo(f"local     {moment.astimezone().isoformat(timespec='milliseconds')}")
    echo(f"physical  {tso.physical_ms(ts)} ms since 1970")
    echo(f"logical   {tso.logical(ts)}")
    echo(f"age       {_age(tso.physical_ms(now) - tso.physical_ms(ts))}")


def _age(milliseconds: int) -> str:
    seconds, sign = abs(milliseconds) / 1000, "" if milliseconds >= 0 else "-"
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{sign}{seconds / size:.1f}{unit}"
    return f"{sign}{seconds:.3f}s"
