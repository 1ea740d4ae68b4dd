"""Traces of a Drainer: one for each lot of binlogs that it delivers, from what the Pumps sent to the downstream.

    drain → pull …, merge, read, write, flush, save

`pull` lasts from the first to the last lot that came from one Pump since the trace before, without the marks that only tell how far it is.
Where the position is saved while nothing comes, the trace is `save`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import nlargest

from tidemill.binlog.blocks import Binlogs
from tidemill.binlog.merge import Merge
from tidemill.errors import TidemillError
from tidemill.traces.process import Tracer, tracer
from tidemill.traces.span import Span, Value

MOST_PUMPS = 64
"""Pumps that a trace shows: those that sent most."""


@dataclass(slots=True)
class Pulled:
    """Lots that came from one Pump. Times are Unix time in nanoseconds."""

    begun_ns: int
    ended_ns: int
    lots: int = 0
    bytes: int = 0


class Traces:
    """What a Drainer does, where nobody asks for traces: nothing is kept."""

    def merge(self, ts: int) -> Merge:
        """Return the merge that begins after `ts`."""
        return Merge(ts)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Something that the Drainer does for what it delivers."""
        yield

    def read(self, binlogs: Binlogs, *, ddl: bool) -> None:
        """These binlogs were read."""

    @contextmanager
    def writing(self) -> Iterator[None]:
        """The downstream takes what was read."""
        yield

    def over(self, ts: int) -> None:
        """A round is over, and everything up to `ts` is taken."""

    def failed(self, error: TidemillError | OSError) -> None:
        """The round failed."""


class SentTraces(Traces):
    """Belongs to the event loop of a Drainer. `destination`: what it delivers to."""

    def __init__(self, destination: str, tracer: Tracer) -> None:
        self._destination, self._tracer = destination, tracer
        self._offset_ns = 0
        """Unix time less the clock of durations, as it was when the round began: a clock that is set does not tear a round apart."""
        self._pulled: dict[str, Pulled] = {}
        self._steps: list[Span] = []
        self._from_ts = self._binlogs = self._bytes = self._ddls = 0
        self._is_written = False

    def merge(self, ts: int) -> Merge:
        return TracedMerge(ts, self)

    def pulled(self, node_id: str, size: int) -> None:
        """A lot of binlogs came from a Pump, of so many bytes."""
        now = time.time_ns()
        pulled = self._pulled.setdefault(node_id, Pulled(now, now))
        pulled.ended_ns, pulled.lots, pulled.bytes = now, pulled.lots + 1, pulled.bytes + size

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        if not self._steps:
            self._offset_ns = time.time_ns() - time.perf_counter_ns()
        begun = self._now()
        try:
            yield
        except (TidemillError, OSError) as error:
            self._steps.append(Span(name, begun, self._now(), {}, (), *_said(error)))
            raise
        self._steps.append(Span(name, begun, self._now()))

    def _now(self) -> int:
        return time.perf_counter_ns() + self._offset_ns

    def read(self, binlogs: Binlogs, *, ddl: bool) -> None:
        if len(binlogs):
            self._from_ts = self._from_ts or int(binlogs.heads["commit_ts"][0])
            self._binlogs += len(binlogs)
            self._bytes += int(binlogs.sizes.sum())
        self._ddls += ddl

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._is_written = True
        with self.step("write"):
            yield

    def over(self, ts: int) -> None:
        if self._is_written:
            self._send(self._drain({"tidemill.to_ts": ts}))
        elif any(one.name == "save" for one in self._steps):
            steps = tuple(one for one in self._steps if one.name in ("flush", "save"))
            about: dict[str, Value] = {"tidemill.destination": self._destination, "tidemill.to_ts": ts}
            self._tracer.send(Span("save", steps[0].begun_ns, steps[-1].ended_ns, about, steps[:-1]))
            self._forget()
        else:
            self._forget()

    def failed(self, error: TidemillError | OSError) -> None:
        self._send(self._drain({}, error))

    def _send(self, span: Span) -> None:
        self._tracer.send(span)
        self._pulled = {}
        self._forget()

    def _forget(self) -> None:
        self._steps = []
        self._from_ts = self._binlogs = self._bytes = self._ddls = 0
        self._is_written = False

    def _drain(self, more: dict[str, Value], error: TidemillError | OSError | None = None) -> Span:
        pulls = [_pull(node_id, self._pulled[node_id]) for node_id in sorted(_most(self._pulled))]
        steps = (*pulls, *self._steps)
        begun = min((one.begun_ns for one in steps), default=self._now())
        ended = max((one.ended_ns for one in steps), default=begun)
        about: dict[str, Value] = {
            "tidemill.destination": self._destination,
            "tidemill.from_ts": self._from_ts,
            "tidemill.binlogs": self._binlogs,
            "tidemill.bytes": self._bytes,
            "tidemill.ddls": self._ddls,
            **more,
        }
        return Span("drain", begun, ended, about, steps, *(("", "") if error is None else _said(error)))


class TracedMerge(Merge):
    """Tells what comes into it, and how long it takes to give something out."""

    def __init__(self, ts: int, traces: SentTraces) -> None:
        super().__init__(ts)
        self._traces = traces

    def add(self, node_id: str, binlogs: Binlogs) -> None:
        before = self.waiting(node_id)
        super().add(node_id, binlogs)
        came = self.waiting(node_id) - before
        if came:
            self._traces.pulled(node_id, came)

    def next(self, most: int, most_bytes: int = 1 << 62) -> Binlogs:
        with self._traces.step("merge"):
            return super().next(most, most_bytes)


def traces_of(destination: str) -> Traces:
    """The traces of a Drainer that delivers to this, if this process sends any."""
    found = tracer()
    return Traces() if found is None else SentTraces(destination, found)


def _most(pulled: dict[str, Pulled]) -> list[str]:
    return nlargest(MOST_PUMPS, pulled, key=lambda node_id: pulled[node_id].bytes)


def _pull(node_id: str, pulled: Pulled) -> Span:
    about: dict[str, Value] = {"tidemill.pump": node_id, "tidemill.lots": pulled.lots, "tidemill.bytes": pulled.bytes}
    return Span("pull", pulled.begun_ns, pulled.ended_ns, about)


def _said(error: TidemillError | OSError) -> tuple[str, str]:
    return (error.code, error.message) if isinstance(error, TidemillError) else (type(error).__name__, str(error))
