"""Changefeeds as text for people: `tidemill changefeed list` and `show`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidemill import tso
from tidemill.cli.shared.explained import print_lines, print_table

_SHOWN = 240
"""Characters of an error in a list. A terminal breaks them into lines of the column."""


def print_list(found: Sequence[Mapping[str, Any]], now: int) -> None:
    """Print a line for each changefeed."""
    if not found:
        print_lines([("", "There is no changefeed. Create one: tidemill changefeed create --sink-uri …")])
        return
    rows = [
        (
            str(one["id"]),
            str(one["state"]),
            str(one["checkpoint_time"]),
            behind(int(one["checkpoint_tso"]), now),
            _short((one.get("error") or {}).get("message", "")),
        )
        for one in found
    ]
    print_table(("ID", "STATE", "CHECKPOINT", "BEHIND", "ERROR"), rows)


def print_one(info: Mapping[str, Any], now: int) -> None:
    """Print all that is known of a changefeed."""
    print_lines(_lines(info, now))
    config = info.get("config") or {}
    if config:
        from tidemill.config.replica_config import from_json, without_defaults
        from tidemill.config.toml_text import toml_text

        print_lines([("config", "")])
        print_lines(("", f"  {line}") for line in toml_text(without_defaults(from_json(config))).splitlines())


def _lines(info: Mapping[str, Any], now: int) -> Iterator[tuple[str, str]]:
    yield "id", str(info["id"])
    yield "state", str(info.get("state", ""))
    error = info.get("error")
    if error:
        yield "error", f"{error.get('code', '')}: {error.get('message', '')}"
        yield "since", str(error.get("time", ""))
    yield "sink", str(info.get("sink_uri", ""))
    checkpoint = int(info["checkpoint_ts"])
    yield "checkpoint", f"{tso.describe(checkpoint)}, {behind(checkpoint, now)} behind"
    yield "resolved", tso.describe(int(info["resolved_ts"]))
    yield "start", tso.describe(int(info.get("start_ts", 0)))
    if info.get("target_ts"):
        yield "target", tso.describe(int(info["target_ts"]))
    yield "created", f"{info.get('create_time', '')} by {info.get('creator_version', '')}"
    tables = sum(len(one.get("table_ids") or ()) for one in info.get("task_status") or ())
    yield "tables", str(tables)


def behind(ts: int, now: int) -> str:
    """Return how far a ts is behind another one."""
    seconds = max(0, tso.physical_ms(now) - tso.physical_ms(ts)) / 1000
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def _short(text: str) -> str:
    line = text.replace("\n", " ")
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
