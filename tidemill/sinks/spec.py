"""Opens the two halves of a sink URI's sink. The sinks and what is special to each: `tidemill.config.sinks`.

A sink is imported on first use, so a worker loads the libraries of one sink only.
"""

from __future__ import annotations

import functools

from tidemill.config.uri import parse_sink_uri
from tidemill.sinks.base import DriverSink, TaskSink


@functools.lru_cache(maxsize=8)
def open_task_sink(uri: str) -> TaskSink:
    """Return this worker process's task sink for a (resolved) sink URI. There is one for each URI as long as the process lives."""
    parsed = parse_sink_uri(uri)
    opened: TaskSink = parsed.spec.load(parsed.spec.task)(parsed)
    return opened


def forget_task_sinks() -> None:
    """Close this process's task sinks: it runs no more items for a while."""
    open_task_sink.cache_clear()


def open_driver_sink(uri: str, *, fresh: bool = False) -> DriverSink:
    """Return the driver sink. `fresh`: replace the output of an earlier delivery (`tidemill replay`) instead of continuing it."""
    parsed = parse_sink_uri(uri)
    kept = {"fresh": fresh} if parsed.spec.keeps_parts else {}
    opened: DriverSink = parsed.spec.load(parsed.spec.driver)(parsed, **kept)
    return opened
