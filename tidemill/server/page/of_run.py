"""The page of a `tidemill run`: its status in the form of `overview`, for one changefeed, with nothing to change.

It is served beside /status and /metrics, by a server that answers at once: log lines come without waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from tidemill import tso
from tidemill.capture.status import CaptureStatus
from tidemill.errors import redact
from tidemill.metrics.pages import Page, asked_page, json_page
from tidemill.server.feeds import redacted
from tidemill.server.page import overview as o
from tidemill.server.page.files import HEADERS, files
from tidemill.server.page.history import STEP_S, History, Point
from tidemill.server.page.log_lines import FileEnd, Ring
from tidemill.statefile import fitting

_COUNTED = ("rows", "messages", "bytes", "ddls", "batches", "skipped_rows")


class RunPage:
    """What the page of one run shows. `snapshot`: the run's status (`RunStatus.snapshot`)."""

    def __init__(self, snapshot: Callable[[], Mapping[str, Any]], *, version: str, sink_uri: str, ring: Ring, file: FileEnd | None) -> None:
        self._snapshot, self._version, self._sink = snapshot, version, redact(sink_uri)
        self._ring, self._file = ring, file
        self._history, self._noted_at = History(), -STEP_S
        self._started_at = time.time()

    def pages(self) -> dict[str, Page]:
        """Return the pages by their paths, with the page's own files."""
        found = {path: _static(file.media_type, file.content) for path, file in files().items()}
        found["/api/page/overview"] = json_page(self.overview)
        found["/api/page/history"] = asked_page(lambda query: self._history_of(query.get("changefeed", "")))
        found["/api/page/log"] = asked_page(lambda query: self._log_lines(query.get("after", "")))
        return found

    def note(self) -> None:
        """Keep a point of the history, if it is time for one."""
        if time.monotonic() - self._noted_at < STEP_S:
            return
        self._noted_at = time.monotonic()
        now, told = time.time(), self._snapshot()
        lags = [o.lag_s(told.get("checkpoint_ts") or 0, now), o.lag_s(_resolved(told), now)]
        self._history.note(now, {str(told["changefeed"]): Point(lags[0] or 0.0, lags[1] or 0.0, told.get("rows_per_s") or 0.0)})

    def overview(self) -> dict[str, Any]:
        """Return everything: see `overview`."""
        now, told = time.time(), self._snapshot()
        return {
            "now": now,
            "server": {
                "version": self._version,
                "id": "",
                "address": told.get("status_addr") or "",
                "is_owner": True,
                "liveness": 0,
                "pid": None,
                "upstream_id": told.get("capture", {}).get("cluster_id", ""),
                "pd_addrs": [],
                "log": "",
                "started_at": self._started_at,
                "read_only": True,
                "needs_token": False,
            },
            "captures": [],
            "processes": [o.process(one) for one in told.get("processes", ())],
            "capture": o.capture(_capture(told), now),
            "changefeeds": [self._feed(told, now)],
        }

    def _feed(self, told: Mapping[str, Any], now: float) -> dict[str, Any]:
        checkpoint, resolved = told.get("checkpoint_ts") or 0, _resolved(told)
        return {
            "id": told["changefeed"],
            "state": str(told.get("state")),
            "sink_uri": self._sink,
            "may": [],
            "config": {},
            "warnings": [],
            "start_ts": str(told.get("start_ts") or 0),
            "target_ts": str(told["target_ts"]) if told.get("target_ts") else None,
            "created_at": None,
            "moved_at": told.get("moved_at") or None,
            "retry_at": told.get("retry_at"),
            "holds_log_until": None,
            "checkpoint_ts": str(checkpoint),
            "checkpoint_at": tso.physical_ms(checkpoint) / 1000 if checkpoint else None,
            "checkpoint_lag_s": o.lag_s(checkpoint, now),
            "resolved_ts": str(resolved),
            "resolved_lag_s": o.lag_s(resolved, now),
            **{name: told.get(name) or 0 for name in _COUNTED},
            "rows_per_s": told.get("rows_per_s") or 0.0,
            "last_batch": told.get("last_batch") or {},
            "error": _error(told),
        }

    def _history_of(self, feed: str) -> dict[str, Any]:
        return self._history.of(feed) if feed else self._history.lags()

    def _log_lines(self, after: str) -> dict[str, Any]:
        if self._file is not None and (text := self._file.read()):
            self._ring.add(text)
        last, lines = self._ring.after(int(after) if after.isdecimal() and len(after) < 16 else -1)
        return {"last": last, "lines": lines}


def _static(media_type: str, content: bytes) -> Page:
    return Page(media_type, lambda: content, {**HEADERS, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"})


def _capture(told: Mapping[str, Any]) -> CaptureStatus:
    known = {f.name for f in fields(CaptureStatus)}
    found = {name: value for name, value in (told.get("capture") or {}).items() if name in known}
    return CaptureStatus(**fitting(CaptureStatus, found))


def _resolved(told: Mapping[str, Any]) -> int:
    found = (told.get("capture") or {}).get("resolved_ts", 0)
    return found if isinstance(found, int) else 0


def _error(told: Mapping[str, Any]) -> dict[str, Any] | None:
    """The error, with how to resume as what to do."""
    error = told.get("error")
    if not error:
        return None
    message, _, hint = str(redacted(error).get("message", "")).partition("\n")
    resume = f"To resume: {told['resume']}" if told.get("resume") else ""
    at = told.get("failed_at") or told.get("warning_since") or told.get("updated_at")
    return {"code": str(error.get("code", "")), "message": message, "hint": " ".join(filter(None, (hint.strip(), resume))), "at": at}
