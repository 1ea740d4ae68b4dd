"""The status of a capture: status.json, /status and /metrics."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from tidemill.capture.tikv.watchdog.causes import Cause
from tidemill.changelog.storage.outcomes import FULL
from tidemill.metrics import histogram as histograms
from tidemill.metrics.histogram import all_from
from tidemill.metrics.samples import Sample, counter, gauge, histogram
from tidemill.statefile import fitting
from tidemill.tso import describe, physical_ms

FILE = "status.json"


@dataclass(slots=True)
class Section:
    """The status of one process of a capture. Counters begin at `counted_since`: with the process, and again when it begins again with
    another layout of the log."""

    heads: dict[int, int] = field(default_factory=dict)  # per partition that it owns
    counted_since: float = 0.0  # Unix seconds
    synced: dict[int, int] = field(default_factory=dict)  # of these, the heads that survive a crash of the machine
    tables: int = 0
    regions: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    bytes: int = 0
    segments: int = 0
    received_bytes: int = 0
    received_messages: int = 0
    spilled_rows: int = 0
    region_errors: dict[str, int] = field(default_factory=dict)
    protocol_violations: int = 0
    waiting_bytes: int = 0
    prewrite_bytes: int = 0
    slowest: list[dict[str, Any]] = field(default_factory=list)
    stuck: list[dict[str, Any]] = field(default_factory=list)
    held_tables: list[dict[str, Any]] = field(default_factory=list)
    ranges_behind: int = 0
    locks_resolved: int = 0
    transactions_resolved: int = 0
    regions_renewed: int = 0
    streams_renewed: int = 0
    paused: str = ""  # why nothing is published
    matched_rows: int = 0
    unknown_events: int = 0
    stale_rows: int = 0
    rows_out_of_range: int = 0
    repeated_commits: int = 0
    lock_only_rows: int = 0
    skipped_rows: int = 0
    repeated_initialized: int = 0
    spilled_prewrites: int = 0
    region_questions: int = 0
    pending_prewrites: int = 0
    late_commits: int = 0
    memory_bytes: int = 0
    inbox_bytes: int = 0
    violations: dict[str, int] = field(default_factory=dict)
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    stages: dict[str, Any] = field(default_factory=dict)  # histograms of seconds: feed, sort, seal

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Section:
        """Read a section from JSON. Missing and unknown fields are ignored: they are another version's. Raises TypeError, ValueError."""
        known = {one.name: told[one.name] for one in fields(cls) if one.name in told}
        heads = {name: {int(p): int(head) for p, head in told.get(name, {}).items()} for name in ("heads", "synced")}
        return cls(**{**known, **heads})


_SUMS = (
    *("tables", "rows", "bytes", "segments", "received_bytes", "received_messages", "spilled_rows", "protocol_violations"),
    *("waiting_bytes", "prewrite_bytes", "locks_resolved", "regions_renewed", "streams_renewed", "matched_rows", "unknown_events"),
    *("stale_rows", "rows_out_of_range", "repeated_commits", "spilled_prewrites", "region_questions", "pending_prewrites"),
    *("late_commits", "memory_bytes", "inbox_bytes", "ranges_behind", "lock_only_rows", "skipped_rows", "repeated_initialized"),
    "transactions_resolved",
)
_COUNTS = ("regions", "region_errors", "violations", "cpu_seconds")
LISTED = 64
"""Regions, or tables, in a list at most."""
MEASURED = 16
"""Held tables with metrics of their own at most: labels that come and go cost Prometheus memory."""


@dataclass(slots=True)
class CaptureStatus:
    """The status of a capture at one moment."""

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
    regions: dict[str, int] = field(default_factory=dict)  # sub-ranges by phase
    counted_since: float = 0.0  # Unix seconds: when the counters below began; of groups, the first of them
    rows: int = 0
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
    holding: dict[str, Any] = field(default_factory=dict)  # holds the log's resolved ts: cause, region, store, lock, table, since
    slowest: list[dict[str, Any]] = field(default_factory=list)  # the same per partition, the slowest first
    stuck: list[dict[str, Any]] = field(default_factory=list)  # regions without progress
    held_tables: list[dict[str, Any]] = field(default_factory=list)  # tables that are held up: cause, since when; the slowest first
    ranges_behind: int = 0  # ranges, subscribed or not, that lag so far behind that they may hold up their table
    locks_resolved: int = 0  # locks of clients that are gone
    transactions_resolved: int = 0  # whose locks these were
    regions_renewed: int = 0  # subscribed again because they were stuck
    streams_renewed: int = 0  # opened again because nothing was heard on them
    matched_rows: int = 0  # received with their commit, some more than once
    unknown_events: int = 0  # of subscriptions that had ended
    stale_rows: int = 0  # from before the start
    rows_out_of_range: int = 0  # outside of the subscribed range
    repeated_commits: int = 0
    lock_only_rows: int = 0  # of commits that change nothing
    skipped_rows: int = 0  # without a key, of a kind that this version does not know
    repeated_initialized: int = 0
    spilled_prewrites: int = 0  # that waited on disk
    region_questions: int = 0  # to PD
    pending_prewrites: int = 0  # in memory, now
    late_commits: int = 0  # commits that wait for a prewrite on disk, now
    memory_bytes: int = 0  # of rows, prewrites and received messages, now
    inbox_bytes: int = 0  # messages that wait to be read, now
    violations: dict[str, int] = field(default_factory=dict)  # how stores broke the protocol
    cpu_seconds: dict[str, float] = field(default_factory=dict)  # of receiving, by step
    stages: dict[str, Any] = field(default_factory=dict)  # histograms of seconds: feed, sort, seal
    gc_service: str = ""
    gc_safe_point: int = 0
    gc_seconds_left: int = 0  # how long PD keeps the history if the capture stops now
    gc_ttl_used: float = 0.0  # share of gc-ttl for which the log has not caught up; at 1 the capture ends and releases its barrier
    groups: list[dict[str, Any]] = field(default_factory=list)  # of a capture in several processes: group, place, since when, its part
    storage: dict[str, Any] | None = None  # while the log's storage is unavailable: since when, for how many seconds, and the error
    error: dict[str, str] | None = None  # code and message
    paused: str = ""  # why nothing is published for now
    growth: str = ""  # progress of a request for another layout of the log
    split_tables: dict[str, list[int]] = field(default_factory=dict)  # hot tables, and over which partitions they are spread
    binlog: dict[str, Any] = field(default_factory=dict)  # of a capture of binlogs: its Drainer and Pumps
    updated: float = 0.0  # Unix seconds

    def take(self, sections: Sequence[Section]) -> None:
        """Merge the sections of all processes."""
        for name in _SUMS:
            setattr(self, name, sum(getattr(section, name) for section in sections))
        for name in _COUNTS:
            together: Counter[str] = Counter()
            for section in sections:
                together.update(getattr(section, name))
            setattr(self, name, dict(together))
        self.stages = sections[0].stages if len(sections) == 1 else histograms.together(section.stages for section in sections)
        self.slowest = sorted((one for section in sections for one in section.slowest), key=lambda one: one["resolved_ts"])
        self.stuck = sorted((one for section in sections for one in section.stuck), key=lambda one: one["resolved_ts"])[:LISTED]
        held = (one for section in sections for one in section.held_tables)
        self.held_tables = sorted(held, key=lambda one: one["resolved_ts"])[:LISTED]
        self.holding = self.slowest[0] if self.slowest else {}
        self.counted_since = min((section.counted_since for section in sections if section.counted_since), default=0.0)
        self.paused = next((section.paused for section in sections if section.paused), "")

    def refresh(self, resolved_ts: int) -> None:
        """Set what depends on the resolved ts and the clock."""
        self.updated = time.time()
        self.resolved_ts, self.resolved_time = resolved_ts, describe(resolved_ts)
        self.lag_s = max(0.0, round(self.updated - physical_ms(resolved_ts) / 1000, 3))

    def as_dict(self) -> dict[str, Any]:
        """Return the status as JSON. Lists and objects in it are the status's own: they are replaced, never changed."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def write(self, folder: Path, content: Mapping[str, Any] | None = None) -> None:
        """Replace status.json atomically, by what `as_dict` returned: in one line, because it is written each second. On a full disk
        the old one stays."""
        temporary = folder / f".{FILE}.tmp"
        try:
            temporary.write_text(json.dumps(content or self.as_dict()) + "\n")
            temporary.replace(folder / FILE)
        except OSError as e:
            if e.errno not in FULL:
                raise
            temporary.unlink(missing_ok=True)

    def write_refused(self, folder: Path) -> None:
        """Write the end of a capture that failed before it had its log. What the previous capture reported about the log stays."""
        now = time.time()
        before = _left_in(folder)
        if before.get("log") == self.log:
            names = {f.name for f in fields(self)} - {"state", "pid", "error"}
            for name, value in before.items():
                if name in names:
                    setattr(self, name, value)
            self.gc_seconds_left = max(0, round(self.gc_seconds_left - (now - self.updated)))
        self.updated = now
        self.write(folder)

    def samples(self) -> Iterable[Sample]:
        """Yield the status as Prometheus metrics."""
        yield gauge("tidemill_capture_up", "1 while rows are captured", self.state == "running")
        yield gauge("tidemill_capture_paused", "1 while nothing is published because a disk is low", bool(self.paused))
        yield gauge("tidemill_capture_resolved_ts", "Nothing of the log at or below this TSO is missing", self.resolved_ts)
        yield gauge("tidemill_capture_resolved_ts_lag_seconds", "How far the log is behind the clock", self.lag_s)
        yield gauge("tidemill_capture_schema_resolved_ts", "Head of the schema stream", self.schema_head)
        for p, head in enumerate(self.heads):
            yield gauge("tidemill_capture_partition_resolved_ts", "Head of a partition", head, partition=str(p))
        if self.groups:
            for group in self.groups:
                yield from _flow(group["part"], group=str(group["group"]))
                yield gauge("tidemill_capture_group_up", "1 while a group captures", group["state"] == "running", group=str(group["group"]))
                yield counter("tidemill_capture_group_restarts", "How often a group was started again", group["restarts"],
                              group=str(group["group"]))  # fmt: skip
        else:
            yield from _flow(self.as_dict())
        yield gauge("tidemill_capture_storage_away_seconds", "How long the log's storage has been unavailable; 0 if it is available",
                    self.storage["seconds"] if self.storage else 0)  # fmt: skip
        yield gauge("tidemill_capture_parts_to_read", "Parts of initial loads that are not in the log yet", self.parts_to_read)
        yield gauge("tidemill_capture_stuck_regions", "Regions without progress", len(self.stuck))
        yield gauge("tidemill_capture_held_tables", f"Tables that are held up, {LISTED} are counted at most", len(self.held_tables))
        for one in self.held_tables[:MEASURED]:
            labels = {"table": str(one.get("table", "?")), "partition": str(one["partition"]), "cause": str(one["cause"])}
            yield gauge("tidemill_capture_table_held_seconds", "How long the resolved ts of the slowest tables has not moved",
                        one["seconds"], **labels)  # fmt: skip
            yield gauge("tidemill_capture_table_resolved_ts", "Resolved ts of the slowest tables", one["resolved_ts"], **labels)
        for (table, partition), ts in self._slow_tables().items():
            yield gauge("tidemill_capture_table_resolved_ts_lag_seconds", "How far the slowest tables are behind the clock",
                        max(0.0, round(self.updated - physical_ms(ts) / 1000, 3)), table=table, partition=partition)  # fmt: skip
        yield gauge("tidemill_capture_held_seconds", "How long the resolved ts of the slowest sub-range has not moved",
                    self.holding.get("seconds", 0.0))  # fmt: skip
        yield gauge("tidemill_capture_gc_safe_point", "The service GC safe point held at PD", self.gc_safe_point)
        yield gauge("tidemill_capture_gc_ttl_used", "Share of gc-ttl for which the log has not caught up", self.gc_ttl_used)
        yield gauge("tidemill_capture_gc_seconds_left", "How long PD keeps the history if the capture stops now", self.gc_seconds_left)

    def _slow_tables(self) -> dict[tuple[str, str], int]:
        """Resolved ts by table and partition: those of the slowest ranges, and those that are held up. The slowest come first."""
        found: dict[tuple[str, str], int] = {}
        for one in sorted((*self.slowest, *self.held_tables), key=lambda one: one["resolved_ts"]):
            found.setdefault((str(one.get("table", "?")), str(one.get("partition", "?"))), one["resolved_ts"])
        return dict(islice(found.items(), MEASURED))


_OF_LOG = {
    Cause.STORAGE.value: "the log: its storage is away",
    Cause.PAUSED.value: "the log: the capture pauses",
    Cause.LAYOUT.value: "the log: its layout is about to change",
    Cause.SEALING.value: "the log: rows are sealed more slowly than they come",
}
"""Causes that lie in no region."""
LOG_HELD_S = 5.0
"""Seconds without moving after which the log itself may be what holds its resolved ts. Sealing takes less."""


class LogHold:
    """Finds out whether the log itself holds its resolved ts: every region is further, and the log does not move."""

    def __init__(self) -> None:
        self._resolved, self._since = 0, 0.0

    def look(self, status: CaptureStatus, held_at: int | None, now: float) -> dict[str, Any]:
        """Return what holds the resolved ts at monotonic time `now`: a region (`status.holding`), or else the log itself. `held_at`: the ts
        at which a change of the layout holds all partitions."""
        if status.resolved_ts != self._resolved:
            self._resolved, self._since = status.resolved_ts, now
        seconds = now - self._since
        if seconds < LOG_HELD_S or status.holding.get("resolved_ts", 0) <= status.resolved_ts:
            return status.holding
        since = datetime.fromtimestamp(status.updated - seconds, UTC).isoformat(timespec="seconds")
        cause = self._cause(status, held_at)
        where = {"resolved_ts": status.resolved_ts, "resolved_time": status.resolved_time}
        return {"cause": cause.value, "seconds": round(seconds, 1), "since": since, **where}

    def _cause(self, status: CaptureStatus, held_at: int | None) -> Cause:
        if status.storage is not None:
            return Cause.STORAGE
        if status.paused:
            return Cause.PAUSED
        return Cause.LAYOUT if held_at is not None and status.resolved_ts >= held_at else Cause.SEALING


def held_by(holding: dict[str, Any]) -> str:
    """Return what holds the log's resolved ts, as a sentence."""
    said = _OF_LOG.get(holding.get("cause", "")) or f"{holding.get('table', '?')}, {holding.get('phase', '?')}"
    if "region" in holding:
        said += f", region {holding['region']} at store {holding['store']} {holding.get('store_address', '')}".rstrip()
    if holding.get("last_error"):
        said += f", {Cause.UNSUBSCRIBED}: {holding['last_error']}"
    if "lock" in holding:
        lock = holding["lock"]
        said += f", locked by the transaction {lock['start_ts']} (key {lock['key']} of {lock['table']}, primary {lock['primary']})"
    if "group" in holding:
        said += f", pulled by group {holding['group']} on {holding.get('host', '?')}"
    return f"{said}; at {holding.get('resolved_time', '?')} for {holding.get('seconds', 0)} s, since {holding.get('since', '?')}"


def start_of(folder: Path, log: str) -> int:
    """Return the start ts of the log by the status that the previous capture left; 0 without one, or for another log."""
    before = _left_in(folder)
    found: int = before.get("start_ts", 0) if before.get("log") == log else 0
    return found


def _left_in(folder: Path) -> dict[str, Any]:
    """The status that the previous capture left, without what cannot be used."""
    try:
        return fitting(CaptureStatus, json.loads((folder / FILE).read_bytes()))
    except (OSError, ValueError, RecursionError):
        return {}


def _flow(part: Mapping[str, Any], **labels: str) -> Iterable[Sample]:
    """Yield the metrics of one process."""
    yield gauge("tidemill_capture_tables", "Physical tables captured", part["tables"], **labels)
    for phase, n in part["regions"].items():
        yield gauge("tidemill_capture_regions", "Sub-ranges by phase", n, phase=phase, **labels)
    for name, text in _COUNTERS.items():
        yield counter(f"tidemill_capture_{name}", text, part[name], **labels)
    for kind, n in part["region_errors"].items():
        yield counter("tidemill_capture_region_errors", "Errors of regions by kind", n, kind=kind, **labels)
    for cause, n in part["violations"].items():
        yield counter("tidemill_capture_violations", "How stores broke the protocol", n, cause=cause, **labels)
    for step, seconds in part["cpu_seconds"].items():
        yield counter("tidemill_capture_cpu_seconds", "CPU time of receiving by step", seconds, step=step, **labels)
    for stage, values in all_from(part.get("stages")).items():
        yield histogram("tidemill_capture_stage_seconds", "Durations of what the capture does", values, stage=stage, **labels)
    for name, text in _GAUGES.items():
        yield gauge(f"tidemill_capture_{name}", text, part[name], **labels)


_COUNTERS = {
    "rows": "Rows written to the log",
    "bytes": "Bytes of rows written to the log",
    "segments": "Segments written",
    "received_bytes": "Bytes received from stores",
    "received_messages": "Messages received from stores",
    "spilled_rows": "Rows that waited on disk",
    "protocol_violations": "Subscriptions begun again because a store broke the protocol",
    "locks_resolved": "Locks of dead clients that were resolved",
    "transactions_resolved": "Transactions of dead clients whose locks were resolved",
    "regions_renewed": "Regions subscribed again because they were stuck",
    "streams_renewed": "Streams opened again because they were silent",
    "matched_rows": "Rows received with their commit, some more than once",
    "unknown_events": "Events of subscriptions that had ended",
    "stale_rows": "Rows received from before the start",
    "rows_out_of_range": "Rows received outside of the subscribed range",
    "repeated_commits": "Commits received again",
    "lock_only_rows": "Rows of commits that only lock",
    "skipped_rows": "Rows left out: without a key, of a kind that this version does not know",
    "repeated_initialized": "Ends of a scan received again",
    "spilled_prewrites": "Prewrites that waited on disk",
    "region_questions": "Questions to PD for regions, many ranges in each",
}

_GAUGES = {
    "waiting_bytes": "Bytes of rows that are not resolved yet",
    "prewrite_bytes": "Bytes of prewrites without their commit",
    "pending_prewrites": "Prewrites in memory without their commit",
    "late_commits": "Commits that wait for prewrites on disk",
    "memory_bytes": "Bytes of rows, prewrites and received messages in memory",
    "inbox_bytes": "Bytes of messages that wait to be read",
    "ranges_behind": "Ranges of tables that lag behind",
}
