"""The metrics of one changefeed, made of its delivery.json. Pure but for the clock, which is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidemill.changefeed.states import KEPT, State
from tidemill.metrics.histogram import all_from, from_dict
from tidemill.metrics.samples import Sample, counter, gauge, histogram
from tidemill.metrics.ticdc import STATUS
from tidemill.tso import physical_ms

MEASURED = 64
"""Log partitions with a lag of their own at most."""


def feed_samples(feed: str, delivery: Mapping[str, Any], now: float, *, brokers: bool = True) -> Iterator[Sample]:
    """Yield the metrics. `delivery`: fields of `feed_status.Status`; any of them may be missing. `now`: Unix seconds. `brokers`: whether
    a process delivers, so that what its brokers last told is not old."""
    state = str(delivery.get("state", State.NORMAL))
    for known in KEPT:
        yield gauge("tidemill_changefeed_state", "1 for the state the changefeed is in", known == state, changefeed=feed, state=known)
    yield gauge("tidemill_changefeed_status", "The state as TiCDC's number", STATUS.get(state, STATUS["normal"]), changefeed=feed)
    checkpoint = delivery.get("checkpoint_ts", 0)
    yield gauge("tidemill_changefeed_checkpoint_ts", "Everything at or below this TSO is delivered", checkpoint, changefeed=feed)
    yield gauge("tidemill_changefeed_checkpoint_lag_seconds", "How far it is behind the clock", lag(checkpoint, now), changefeed=feed)
    for partition, ts in enumerate(delivery.get("partitions", [])[:MEASURED]):
        yield gauge("tidemill_changefeed_partition_lag_seconds", "How far a partition of the log is delivered behind the clock",
                    lag(ts, now), changefeed=feed, partition=str(partition))  # fmt: skip
    for name, text in _COUNTED.items():
        yield counter(f"tidemill_changefeed_{name}", text, delivery.get(name, 0), changefeed=feed)
    yield from _durations(feed, delivery.get("histograms", {}))
    if brokers:
        yield from _brokers(feed, delivery.get("brokers", []))


def lag(ts: int, now: float) -> float:
    """Seconds that a TSO is behind the clock; 0 for none."""
    return round(max(0.0, now - physical_ms(ts) / 1000), 3) if ts else 0.0


def _durations(feed: str, told: Mapping[str, Any]) -> Iterator[Sample]:
    for name, text in (("batch", "Durations of batches, all attempts together"), ("registry", "Durations of requests to the registry")):
        if (found := from_dict(told.get(name))) is not None:
            yield histogram(f"tidemill_changefeed_{name}_seconds", text, found, changefeed=feed)
    if (rows := from_dict(told.get("rows"))) is not None:
        yield histogram("tidemill_changefeed_batch_rows", "Rows of batches", rows, changefeed=feed)
    for stage, one in all_from(told.get("stages")).items():
        yield histogram("tidemill_changefeed_stage_seconds", "Durations of the driver's stages", one, changefeed=feed, stage=stage)
    for step, one in all_from(told.get("steps")).items():
        yield histogram("tidemill_changefeed_task_seconds", "Durations of a task's steps", one, changefeed=feed, step=step)


def _brokers(feed: str, told: list[Mapping[str, Any]]) -> Iterator[Sample]:
    for one in told:
        labels = {"changefeed": feed, "broker": str(one.get("broker", "?"))}
        for kind in ("avg", "p99"):
            yield gauge("tidemill_kafka_request_latency_seconds", "How long a broker's newest answers took",
                        one.get(f"latency_{kind}_s", 0.0), **labels, type=kind)  # fmt: skip
        yield gauge("tidemill_kafka_in_flight_requests", "Requests that a broker has not answered", one.get("in_flight", 0), **labels)
        yield counter("tidemill_kafka_requests", "Requests sent to a broker", one.get("requests", 0), **labels)
        yield counter("tidemill_kafka_sent_bytes", "Bytes sent to a broker", one.get("sent_bytes", 0), **labels)


_COUNTED = {
    "batches": "Batches delivered",
    "rows": "Rows delivered",
    "messages": "Messages delivered",
    "bytes": "Bytes delivered",
    "ddls": "DDLs delivered",
    "slow_rows": "Rows that the plain encoder wrote instead of a kernel",
    "skipped_rows": "Rows that were left out by name (--skip-row)",
    "corrupted_rows": "Rows that were sent although they do not fit their checksum",
    "missed_rows": "Rows that were to be changed or deleted in a database and were not there",
    "errors": "Attempts that failed",
}
