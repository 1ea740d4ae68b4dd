"""What the server tells of itself: the capture's status file, and metrics of its changefeeds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from tidemill.capture.status import CaptureStatus
from tidemill.changefeed import feed_metrics
from tidemill.metrics.samples import Sample
from tidemill.server.feeds import Feed
from tidemill.statefile import fitting


def capture_status(folder: Path) -> CaptureStatus:
    """The capture's status as it last wrote it; an empty one before."""
    try:
        found = json.loads((folder / "status.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        found = {}
    return CaptureStatus(**fitting(CaptureStatus, found))


def feed_samples(feeds: Iterable[Feed], now: float) -> Iterable[Sample]:
    """Yield the metrics of changefeeds, those that `tidemill run` has of its one."""
    for feed in feeds:
        told = {**asdict(feed.figures), "state": str(feed.life.state), "checkpoint_ts": feed.checkpoint_ts}
        yield from feed_metrics.feed_samples(feed.id, told, now, brokers=False)
