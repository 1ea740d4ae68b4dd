"""Samples of every metric there is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tidemill.canal.conversation.subscriber import Counts
from tidemill.canal.server.metrics import samples as canal_samples
from tidemill.capture.status import CaptureStatus, Section
from tidemill.changefeed.feed_folder import FeedFolder
from tidemill.changefeed.feed_metrics import feed_samples
from tidemill.changefeed.run_status import RunStatus
from tidemill.cli.downstream.consume_metrics import samples as consume_samples
from tidemill.delivery.measure.timings import Timings
from tidemill.metrics.histogram import Histograms
from tidemill.metrics.samples import Sample, start_time
from tidemill.metrics.ticdc import with_ticdc_names
from tidemill.process.supervisor import ChildProcess
from tidemill.server.shared.election import Lease, Phase, State
from tidemill.server.shared.leading import Leading
from tidemill.views.figures import Figures
from tidemill.views.figures import samples as view_samples

BROKER = {"broker": "1", "latency_avg_s": 0.1, "latency_p99_s": 0.2, "in_flight": 1, "requests": 1, "sent_bytes": 1}

CONSUMED = {
    "flushed_ts": 1,
    "lag_s": 1.0,
    "pending_rows": 1,
    "pending_bytes": 1,
    "partitions": {"t[0]": {}},
    "held_by": ["t[0]"],
    "messages": 1,
    "transactions": 1,
    "rows": 1,
    "ddls": 1,
    "repeated_rows": 1,
    "spilled_rows": 1,
    "commits": 1,
    "restarts": 1,
}
"""The status of a consumer that something holds."""


def full_status(*, in_groups: bool) -> CaptureStatus:
    """A capture of which every metric has something to tell."""
    flow: dict[str, Any] = {
        "regions": {"live": 1},
        "region_errors": {"not_leader": 1},
        "violations": {"row": 1},
        "cpu_seconds": {"scan": 1.0},
    }
    flow |= {"stages": Histograms(("feed", "sort", "seal")).as_dict()}
    held = {"table": "a.b", "partition": 0, "cause": "lock", "seconds": 1.0, "resolved_ts": 1}
    group = {"group": 0, "state": "running", "restarts": 0, "part": asdict(Section(**flow))}
    return CaptureStatus(heads=[1], held_tables=[held], groups=[group] if in_groups else [], **flow)


def of_a_leader() -> list[Sample]:
    """A server that has taken the lead."""
    follows = State("a", lease=Lease(1, "b", 1, 5.0), seen_at=1.0)
    takes = State("a", Phase.TAKES, Lease(2, "a", 1, 5.0), seen_at=7.0, valid_until=11.0)
    leads = State("a", Phase.LEADS, Lease(2, "a", 2, 5.0), seen_at=9.0, valid_until=13.0)
    leading = Leading()
    leading.moved(follows, takes, 7.0)
    leading.moved(takes, leads, 9.5)
    return list(leading.samples(leads, 2, 10.0, away=False))


def every_sample(folder: Path) -> list[Sample]:
    child = ChildProcess("changefeed", ["x"], pid=os.getpid())
    client = {"destination": "d", "client": 1, "lag_s": 0, "open_batches": 0, **asdict(Counts())}
    canal = {"checkpoint_ts": 1, "begins": 1, "connections": 0, "refused": 0, "clients": [client]}
    told = {"partitions": [1], "histograms": Timings().as_dict(), "brokers": [BROKER]}
    whole = [
        *feed_samples("f", told, 0.0),
        *canal_samples(canal),
        *full_status(in_groups=False).samples(),
        *full_status(in_groups=True).samples(),
        *of_a_leader(),
        *consume_samples(CONSUMED),
        *view_samples([Figures("v", 1)], 1.0),
    ]
    return [*RunStatus(FeedFolder(folder, "f"), [child]).samples(), *whole, start_time(1.0)]


def page_of_a_run(folder: Path) -> Iterator[Sample]:
    """What one run serves: each series once."""
    child = ChildProcess("changefeed", ["x"], pid=os.getpid())
    told = {"histograms": Timings().as_dict(), "partitions": [1], "brokers": [BROKER]}
    made = [
        *feed_samples("f", told, 0.0),
        *of_a_leader(),
        *full_status(in_groups=False).samples(),
        *RunStatus(FeedFolder(folder, "f"), [child])._samples(),
    ]
    seen = {(one.name, *sorted(one.labels.items())): one for one in reversed(made)}
    by_name = sorted(seen.values(), key=lambda one: one.name)
    return with_ticdc_names(by_name, "f")
