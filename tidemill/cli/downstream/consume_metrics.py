"""Metrics of `tidemill consume`, made of its status. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidemill.metrics.samples import Sample, build_info, counter, gauge

_COUNTERS = {
    "messages": "messages read",
    "transactions": "transactions written",
    "rows": "rows written",
    "ddls": "DDLs applied",
    "repeated_rows": "rows dropped because they came before",
    "spilled_rows": "rows that went to disk while they waited",
    "commits": "commits of the sink",
    "restarts": "how often it went back to what the sink has, after a side was away",
}


def samples(status: Mapping[str, Any]) -> Iterator[Sample]:
    """Yield the metrics of a status, `Consumer.status`."""
    yield gauge("tidemill_consume_flushed_ts", "everything at or below it is in the sink", status["flushed_ts"])
    if status["lag_s"] is not None:
        yield gauge("tidemill_consume_lag_seconds", "how far the sink is behind the clock", status["lag_s"])
    yield gauge("tidemill_consume_pending_rows", "rows that wait for the frontier", status["pending_rows"])
    yield gauge("tidemill_consume_pending_bytes", "memory of rows that wait", status["pending_bytes"])
    held = set(status["held_by"]) if status["pending_rows"] else set()
    for name in status["partitions"]:
        text = "1 for a partition whose resolved ts the rows that wait need"
        topic, _, number = name.removesuffix("]").rpartition("[")
        yield gauge("tidemill_consume_partition_holds", text, name in held, topic=topic, partition=number)
    for name, text in _COUNTERS.items():
        yield counter(f"tidemill_consume_{name}", text, status[name])
    yield build_info()
