"""What the server tells of itself: the capture's status file, and metrics of its changefeeds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tidemill import tso
from tidemill.capture.status import CaptureStatus
from tidemill.changefeed.states import KEPT
from tidemill.metrics.samples import Sample, counter, gauge
from tidemill.server.feeds import Feed
from tidemill.statefile import fitting

_COUNTED = {
    "batches": "Batches delivered",
    "rows": "Rows delivered",
    "messages": "Messages delivered",
    "bytes": "Bytes delivered",
    "ddls": "DDLs delivered",
    "skipped_rows": "Rows that were left out by name",
}


def capture_status(folder: Path) -> CaptureStatus:
    """The capture's status as it last wrote it; an empty one before."""
    try:
        found = json.loads((folder / "status.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        found = {}
    return CaptureStatus(**fitting(CaptureStatus, found))


def feed_samples(feeds: Iterable[Feed], now: float) -> Iterable[Sample]:
    """The metrics of changefeeds."""
    for feed in feeds:
        labels = {"changefeed": feed.id}
        for state in KEPT:
            text = "1 for the state the changefeed is in"
            yield gauge("tidemill_changefeed_state", text, feed.life.state is state, **labels, state=str(state))
        at = feed.checkpoint_ts
        yield gauge("tidemill_changefeed_checkpoint_ts", "Everything at or below this TSO is delivered", at, **labels)
        lag = max(0.0, now - tso.physical_ms(at) / 1000)
        yield gauge("tidemill_changefeed_checkpoint_lag_seconds", "How far it is behind the clock", round(lag, 3), **labels)
        for name, text in _COUNTED.items():
            yield counter(f"tidemill_changefeed_{name}", text, getattr(feed.figures, name), **labels)
