"""What server and host say to each other: JSON objects, a line each. Pure.

The server starts the host with a `HostOrder`, see `process.orders`, and then writes commands to its stdin:

    {"do": "start", "feed": ID, "run": N, "retries": true, "settings": {…}}  run it. N: a number that reports bring back
    {"do": "stop", "feed": ID}                               at the end of its batch
    {"do": "log", "level": "debug"}                          log level

The host writes reports to its stdout:

    {"is": "up"}                                             it is ready for commands
    {"is": "begun", "feed": ID, "run": N}                    everything is open, the first batch is about to begin
    {"is": "erred", "feed": ID, "run": N, "code", "message"} an attempt failed and is tried again
    {"is": "ended", "feed": ID, "run": N, "how": "stopped" | "reached" | "failed", "code", "message", "retryable", "trouble_since"}
    {"is": "progress", "feeds": {ID: {"run": N, …}}}         each second: those whose checkpoint moved, with the counters of `Figures`

Whoever dies, the other one starts from what is on disk: the host ends when its stdin does, and a server whose host ended starts all feeds
again, with higher numbers of runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tidemill.changefeed.runner_options import RETRY_S, TRIGGER_MS
from tidemill.errors import MalformedMessage
from tidemill.statefile import fitting


@dataclass(frozen=True, slots=True)
class HostOrder:
    """What the delivery host is started with. `log` and `spark_conf` may hold passwords."""

    log: str = field(repr=False)
    data_dir: Path
    master: str | None = None  # None: this machine
    spark_conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    trigger_ms: int = TRIGGER_MS
    retry_s: float = RETRY_S
    term: int = 1  # of the server that leads
    log_level: str = "info"
    log_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """How far a changefeed is. Counters run since it was created."""

    run: int
    checkpoint_ts: int
    resolved_ts: int
    batches: int = 0
    rows: int = 0
    messages: int = 0
    bytes: int = 0
    ddls: int = 0
    skipped_rows: int = 0
    moved_at: float = 0.0
    rows_at: float = 0.0
    """When rows were last delivered, in Unix seconds; 0: not since the host started."""
    last_batch: dict[str, float] = field(default_factory=dict)


def command(do: str, **more: Any) -> bytes:
    """Return a line for the host."""
    return _line({"do": do, **more})


def log_level(level: str) -> bytes:
    """Return the line that changes the log level. The capture takes it too."""
    return command("log", level=level)


def report(word: str, **more: Any) -> bytes:
    """Return a line for the server."""
    return _line({"is": word, **more})


def progress(feeds: Mapping[str, Figures]) -> bytes:
    """Return the line about all feeds that have moved."""
    return report("progress", feeds={feed: asdict(figures) for feed, figures in feeds.items()})


def _line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def parse(line: bytes) -> dict[str, Any]:
    """Return the fields of a line. Raises MalformedMessage."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise MalformedMessage(f"a line between the server and its delivery host is not a JSON object: {line[:80]!r}")
    return found


def figures_in(found: Mapping[str, Any]) -> dict[str, Figures]:
    """Return the feeds of a progress report."""
    return {feed: Figures(**fitting(Figures, one)) for feed, one in found.get("feeds", {}).items()}
