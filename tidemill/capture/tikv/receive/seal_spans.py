"""Traces of a capture: one for each seal that wrote rows, from the messages that it had come with to its published segments.

    seal → feed, sort, write

`feed` lasts from the first to the last lot of messages that came since the seal before it, of whatever partition: a lot has rows of many.
Rows are sorted piece by piece between writes: `sort` is the sum, and `write` the rest.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from tidemill.capture.tikv.sort.partition import Sealed
from tidemill.traces.process import Tracer, tracer
from tidemill.traces.span import Span, Value


@dataclass(slots=True)
class Fed:
    """Lots of messages that came one behind the other. Times are Unix time in nanoseconds."""

    begun_ns: int
    ended_ns: int
    lots: int = 0
    busy_ns: int = 0


def seal_span(partition: str, done: Sealed, ended_ns: int, fed: Fed | None) -> Span:
    """The spans of a seal that ended at `ended_ns`. `fed`: the messages that came before it; None if an earlier seal has them all."""
    begun_ns = ended_ns - round(done.seconds * 1e9)
    sorted_ns = begun_ns + round(min(done.sort_seconds, done.seconds) * 1e9)
    children = [Span("sort", begun_ns, sorted_ns), Span("write", sorted_ns, ended_ns)]
    root_ns = begun_ns
    if fed is not None:
        root_ns = min(root_ns, fed.begun_ns)
        came: dict[str, Value] = {"tidemill.lots": fed.lots, "tidemill.busy_ms": round(fed.busy_ns / 1e6, 3)}
        children.insert(0, Span("feed", fed.begun_ns, fed.ended_ns, came))
    attributes: dict[str, Value] = {
        "tidemill.partition": partition,
        "tidemill.to_ts": done.head,
        "tidemill.rows": done.rows,
        "tidemill.bytes": done.bytes,
        "tidemill.files": len(done.files),
    }
    return Span("seal", root_ns, ended_ns, attributes, tuple(children))


class SealTraces:
    """Belongs to the ingest thread. `partitions`: their names, by the receiver's numbers."""

    def __init__(self, partitions: Sequence[str], tracer: Tracer) -> None:
        self._names, self._tracer = tuple(partitions), tracer
        self._fed: dict[int, Fed] = {}

    def fed(self, seconds: float) -> None:
        """A lot of messages was taken in, in so many seconds until now."""
        now, took = time.time_ns(), round(seconds * 1e9)
        for index in range(len(self._names)):
            fed = self._fed.setdefault(index, Fed(now - took, now))
            fed.ended_ns, fed.lots, fed.busy_ns = now, fed.lots + 1, fed.busy_ns + took

    def sealed(self, index: int, done: Sealed) -> None:
        """A seal wrote rows, and has just ended."""
        self._tracer.send(seal_span(self._names[index], done, time.time_ns(), self._fed.pop(index, None)))


def seal_traces(partitions: Sequence[str]) -> SealTraces | None:
    """The traces of a receiver of these partitions; None: this process sends none."""
    found = tracer()
    return None if found is None else SealTraces(partitions, found)
