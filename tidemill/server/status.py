"""What the server tells of itself: the capture's status file, and metrics of its changefeeds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tidemill.capture.status import CaptureStatus
from tidemill.changefeed import feed_metrics
from tidemill.changefeed.run_status import child_samples
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


WRITTEN = ("histograms", "brokers", "errors", "slow_rows", "corrupted_rows", "missed_rows")
"""What the delivery host only writes into delivery.json. The rest it also tells each second."""


def feed_samples(feeds: Iterable[Feed], now: float) -> Iterable[Sample]:
    """Yield the metrics of changefeeds, those that `tidemill run` has of its one. Reads their delivery.json."""
    for feed in feeds:
        written = feed.folder.status() or {}
        told = {name: written[name] for name in WRITTEN if name in written}
        told |= {**asdict(feed.figures), "state": str(feed.life.state), "checkpoint_ts": feed.checkpoint_ts}
        yield from feed_metrics.feed_samples(feed.id, told, now, brokers=feed.life.wanted and feed.figures.run > 0)


def process_samples(seen: Iterable[Mapping[str, Any]]) -> Iterator[Sample]:
    """Yield the metrics of the server's processes, those that `tidemill run` has of its own. `seen`: of `Processes.seen`."""
    for one in seen:
        yield from child_samples(str(one["name"]), one["pid"] is not None, one["restarts"])
