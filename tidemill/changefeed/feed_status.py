"""delivery.json: how the delivery of a changefeed is doing. It may be lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tidemill.changefeed.states import KEPT, State
from tidemill.errors import TidemillError, redact
from tidemill.statefile import fitting

ONLY_METRICS = ("histograms", "brokers")
"""Fields that are shown as metrics, not to people."""


@dataclass(slots=True)
class Status:
    """delivery.json: how a changefeed is doing."""

    changefeed: str
    created_at: float = 0.0  # of a server's changefeed: what an earlier one of that name left is not this one's
    state: str = State.NORMAL
    running: bool = True
    pid: int = 0
    start_ts: int = 0
    target_ts: int | None = None
    checkpoint_ts: int = 0
    resolved_ts: int = 0  # where the furthest log partition is delivered to; resolved events follow the slowest
    progress: str = "global"  # or table: each log partition is delivered up to its own head
    partitions: list[int] = field(default_factory=list)  # how far each log partition is delivered, where they are not equally far
    checkpoint_lag_s: float = 0.0
    batches: int = 0
    rows: int = 0
    messages: int = 0
    bytes: int = 0
    ddls: int = 0
    slow_rows: int = 0
    skipped_rows: int = 0  # left out by --skip-row
    corrupted_rows: int = 0  # sent although they do not fit their checksum
    missed_rows: int = 0  # of a database: to be changed or deleted, but not there
    errors: int = 0  # failed attempts
    epoch: int = 0
    last_batch: dict[str, float] = field(default_factory=dict)
    error: dict[str, str] | None = None
    begun: bool = False  # this process has begun a batch
    moved_at: float = 0.0  # when the checkpoint last moved; this and the next four are Unix seconds
    warning_since: float | None = None  # when the first error since then came
    retry_at: float | None = None  # when the process is started again
    failed_at: float | None = None
    updated_at: float = 0.0
    histograms: dict[str, Any] = field(default_factory=dict)  # durations of this process, see `Timings`
    brokers: list[dict[str, Any]] = field(default_factory=list)  # how Kafka's brokers answer, see `KafkaDriverSink.brokers`


def described(error: TidemillError) -> dict[str, str]:
    """Return an error as delivery.json and feed.json have it."""
    return {"code": error.code, "message": redact(str(error))}


def usable_status(found: object) -> dict[str, Any]:
    """The fields of a delivery.json, or of a run's status, that a process can go on with."""
    status = fitting(Status, found)
    if status.get("state", State.NORMAL) not in KEPT:
        del status["state"]
    if "error" in status and not {"code", "message"} <= (status["error"] or {"code": "", "message": ""}).keys():
        del status["error"]
    return status
