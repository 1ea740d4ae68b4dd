"""What the page, `tidemill top` and `tidemill status --addr` show, as one JSON object. Pure.

    now           Unix seconds, of the server's clock
    server        version, id, role, log; read_only: nothing can be changed by this page; needs_token: what changes something needs one
    captures      the servers
    processes     name, pid, restarts, last_error
    capture       the capture: state, resolved ts, lag, partitions; `holding`, `stuck` and `held_tables` with what to do (`remedy`)
    changefeeds   one object each, by name: see `changefeed`

TSOs are texts: numbers of JavaScript lose the last digits of one. Times are Unix seconds. Nothing has secrets in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from tidemill import tso
from tidemill.capture.status import CaptureStatus
from tidemill.changefeed.states import State
from tidemill.errors import redact
from tidemill.server import service as s
from tidemill.server.feeds import redacted
from tidemill.server.host.messages import Figures
from tidemill.server.page.remedies import remedy

_MAY = {
    State.NORMAL: ("pause", "remove"),
    State.WARNING: ("pause", "resume", "skip", "remove"),
    State.PENDING: ("pause", "resume", "skip", "remove"),
    State.FAILED: ("resume", "skip", "remove"),
    State.STOPPED: ("resume", "skip", "remove"),
    State.FINISHED: ("remove",),
}
"""What a person may do with a changefeed in each state."""
CAPTURE_SILENT_S = 15.0
"""A capture writes its status each second. After so long without one it is said to be silent."""


def seconds(moment: datetime | None) -> float | None:
    """Return a moment as Unix seconds."""
    return None if moment is None else moment.timestamp()


def lag_s(ts: int, now: float) -> float | None:
    """Return how far a ts is behind the clock; None without a ts."""
    return max(0.0, round(now - tso.physical_ms(ts) / 1000, 3)) if ts else None


def changefeed(info: s.ChangefeedInfo, figures: Figures | None, now: float, rows_per_s: float) -> dict[str, Any]:
    """Return one changefeed. `state` is TiCDC's word, which has no pending. `may`: what a person may do with it now."""
    f = figures or Figures(0, info.checkpoint_ts, info.resolved_ts)
    state = State.WARNING if info.state is State.PENDING else info.state
    return {
        "id": info.id,
        "state": str(state),
        "sink_uri": redact(info.sink_uri),
        "start_ts": str(info.start_ts),
        "target_ts": str(info.target_ts) if info.target_ts else None,
        "created_at": seconds(info.create_time),
        "checkpoint_ts": str(info.checkpoint_ts),
        "checkpoint_at": seconds(info.checkpoint_time),
        "checkpoint_lag_s": lag_s(info.checkpoint_ts, now),
        "resolved_ts": str(info.resolved_ts),
        "resolved_lag_s": lag_s(info.resolved_ts, now),
        "moved_at": f.moved_at or None,
        "rows_per_s": rows_per_s,
        "rows": f.rows,
        "messages": f.messages,
        "bytes": f.bytes,
        "ddls": f.ddls,
        "batches": f.batches,
        "skipped_rows": f.skipped_rows,
        "last_batch": dict(f.last_batch),
        "error": error(info.error),
        "retry_at": seconds(info.retry_at),
        "holds_log_until": seconds(info.holds_log_until),
        "warnings": [redact(text) for text in info.warnings],
        "config": redacted(info.given_config),
        "may": list(_MAY.get(info.state, ())),
    }


def error(found: s.RunningError | None) -> dict[str, Any] | None:
    """Return an error: code, message, hint (what to do), time."""
    if found is None:
        return None
    return {"code": found.code, "message": redact(found.message), "hint": redact(found.hint), "at": seconds(found.time)}


def capture(found: CaptureStatus, now: float) -> dict[str, Any]:
    """Return the capture. `silent_s`: how long it has written no status, if that is long."""
    age = max(0.0, now - found.updated) if found.updated else 0.0
    lives = found.state in ("starting", "running", "stopping")
    held = [_with_remedy(one) for one in found.held_tables]
    return {
        "state": found.state,
        "pid": found.pid if found.updated else None,
        "silent_s": round(age, 1) if lives and age > CAPTURE_SILENT_S else None,
        "log": redact(found.log),
        "cluster_id": found.cluster_id,
        "start_ts": str(found.start_ts),
        "resolved_ts": str(found.resolved_ts),
        "resolved_lag_s": lag_s(found.resolved_ts, now),
        "partitions": [{"partition": p, "resolved_ts": str(head), "lag_s": lag_s(head, now)} for p, head in enumerate(found.heads)],
        "tables": found.tables,
        "regions": dict(found.regions),
        "rows": found.rows,
        "segments": found.segments,
        "counted_since": found.counted_since or None,
        "waiting_bytes": found.waiting_bytes,
        "memory_bytes": found.memory_bytes,
        "parts_to_read": found.parts_to_read,
        "locks_resolved": found.locks_resolved,
        "gc_safe_point": str(found.gc_safe_point),
        "gc_ttl_used": found.gc_ttl_used,
        "paused": redact(found.paused),
        "growth": redact(found.growth),
        "storage": redacted(found.storage) if found.storage else None,
        "holding": _with_remedy(found.holding) if found.holding else None,
        "stuck": [_with_remedy(one) for one in found.stuck],
        "held_tables": held,
        "error": redacted(found.error) if found.error else None,
    }


def _with_remedy(one: Mapping[str, Any]) -> dict[str, Any]:
    """A region or table that holds the log, with what to do about it. Its TSOs become texts."""
    found = {name: _plain(value) for name, value in one.items()}
    return found | {"remedy": remedy(one["cause"]) if "cause" in one else ""}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, str):
        return redact(value)
    return str(value) if isinstance(value, int) and value > 1 << 53 else value


def server(found: s.ServerStatus, address: str, *, read_only: bool, needs_token: bool) -> dict[str, Any]:
    """Return what the server is."""
    return {
        "version": found.tidemill_version,
        "id": found.id,
        "address": address,
        "is_owner": found.is_owner,
        "liveness": found.liveness,
        "pid": found.pid,
        "upstream_id": str(found.upstream_id),
        "pd_addrs": [redact(one) for one in found.pd_addrs],
        "log": redact(found.log),
        "started_at": seconds(found.started_at),
        "read_only": read_only,
        "needs_token": needs_token,
    }


def process(found: Mapping[str, object]) -> dict[str, Any]:
    """Return one process of the server. `last_error`: code and message."""
    last = found.get("last_error")
    if isinstance(last, Sequence) and not isinstance(last, str):
        last = {"code": str(last[0]), "message": str(last[1])}
    return {
        "name": found.get("name"),
        "pid": found.get("pid"),
        "restarts": found.get("restarts", 0),
        "last_error": redacted(last) if isinstance(last, Mapping) else None,
    }
