"""What a capture tells of itself: status.json, /status and /metrics."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tidemill.capture.tikv.watchdog import Verdicts
from tidemill.server.metrics import Sample, counter, gauge
from tidemill.tso import describe, physical_ms

FILE = "status.json"


@dataclass(slots=True)
class CaptureStatus:
    """A moment of a capture."""

    state: str = "starting"  # starting, running, stopping, stopped, failed
    pid: int = field(default_factory=os.getpid)
    cluster_id: str = ""
    log: str = ""
    start_ts: int = 0  # of the log
    resolved_ts: int = 0
    resolved_time: str = ""
    lag_s: float = 0.0
    schema_head: int = 0
    heads: list[int] = field(default_factory=list)  # per partition
    tables: int = 0  # physical
    regions: dict[str, int] = field(default_factory=dict)  # pieces by phase
    rows: int = 0  # since the start of the process, as the next six
    bytes: int = 0
    segments: int = 0
    received_bytes: int = 0
    received_messages: int = 0
    spilled_rows: int = 0
    region_errors: dict[str, int] = field(default_factory=dict)
    protocol_violations: int = 0
    waiting_bytes: int = 0  # rows that are not resolved yet
    prewrite_bytes: int = 0
    parts_to_read: int = 0  # of tables as of one ts (initial load, resync)
    holding: dict[str, Any] = field(default_factory=dict)  # the piece that holds the watermark: region, store, lock, table, since
    slowest: list[dict[str, Any]] = field(default_factory=list)  # the same per partition, the slowest first
    stuck: list[dict[str, Any]] = field(default_factory=list)  # regions without progress
    locks_resolved: int = 0  # of clients that are gone, since the start of the process
    regions_renewed: int = 0  # subscribed again because they were stuck
    gc_service: str = ""
    gc_safe_point: int = 0
    gc_seconds_left: int = 0  # that PD keeps the history if the capture falls silent now
    error: dict[str, str] | None = None  # code and message
    updated: float = 0.0  # Unix seconds

    def refresh(self, resolved_ts: int) -> None:
        """Set what follows from the resolved ts and the clock."""
        self.updated = time.time()
        self.resolved_ts, self.resolved_time = resolved_ts, describe(resolved_ts)
        self.lag_s = max(0.0, round(self.updated - physical_ms(resolved_ts) / 1000, 3))

    def take_verdicts(self, verdicts: Verdicts) -> None:
        """What the watchdog says."""
        self.slowest, self.stuck = verdicts.holders, verdicts.stuck
        self.holding = verdicts.holders[0] if verdicts.holders else {}
        self.locks_resolved, self.regions_renewed = verdicts.locks_resolved, verdicts.renewed

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    def write(self, folder: Path) -> None:
        """Replace status.json at once and whole."""
        temporary = folder / f".{FILE}.tmp"
        temporary.write_text(json.dumps(self.as_dict(), indent=2) + "\n")
        temporary.replace(folder / FILE)

    def samples(self) -> Iterable[Sample]:
        """As Prometheus has it."""
        yield gauge("tidemill_capture_up", "1 while rows are captured", self.state == "running")
        yield gauge("tidemill_capture_resolved_ts", "Nothing of the log at or below this TSO is missing", self.resolved_ts)
        yield gauge("tidemill_capture_resolved_ts_lag_seconds", "How far the log is behind the clock", self.lag_s)
        yield gauge("tidemill_capture_schema_resolved_ts", "Head of the schema stream", self.schema_head)
        for p, head in enumerate(self.heads):
            yield gauge("tidemill_capture_partition_resolved_ts", "Head of a partition", head, partition=str(p))
        yield gauge("tidemill_capture_tables", "Physical tables captured", self.tables)
        for phase, n in self.regions.items():
            yield gauge("tidemill_capture_regions", "Pieces of key ranges by phase", n, phase=phase)
        yield counter("tidemill_capture_rows", "Rows written to the log", self.rows)
        yield counter("tidemill_capture_bytes", "Bytes of rows written to the log", self.bytes)
        yield counter("tidemill_capture_segments", "Segments written", self.segments)
        yield counter("tidemill_capture_received_bytes", "Bytes received from stores", self.received_bytes)
        yield counter("tidemill_capture_received_messages", "Messages received from stores", self.received_messages)
        yield counter("tidemill_capture_spilled_rows", "Rows that waited on disk", self.spilled_rows)
        yield counter("tidemill_capture_protocol_violations", "Subscriptions begun anew because a store broke the protocol",
                      self.protocol_violations)  # fmt: skip
        for kind, n in self.region_errors.items():
            yield counter("tidemill_capture_region_errors", "Errors of regions by kind", n, kind=kind)
        yield gauge("tidemill_capture_waiting_bytes", "Bytes of rows that are not resolved yet", self.waiting_bytes)
        yield gauge("tidemill_capture_prewrite_bytes", "Bytes of prewrites without their commit", self.prewrite_bytes)
        yield gauge("tidemill_capture_parts_to_read", "Parts of initial loads that are not in the log yet", self.parts_to_read)
        yield gauge("tidemill_capture_stuck_regions", "Regions without progress", len(self.stuck))
        yield gauge("tidemill_capture_held_seconds", "How long the slowest piece has been at its resolved ts",
                    self.holding.get("seconds", 0.0))  # fmt: skip
        yield counter("tidemill_capture_locks_resolved", "Locks of dead clients that were ended", self.locks_resolved)
        yield counter("tidemill_capture_regions_renewed", "Regions subscribed again because they were stuck", self.regions_renewed)
        yield gauge("tidemill_capture_gc_safe_point", "The service GC safe point held at PD", self.gc_safe_point)
        yield gauge("tidemill_capture_gc_seconds_left", "How long PD keeps the history without a word of the capture", self.gc_seconds_left)
