"""The range lock: TiCDC's recorded answers, and what must hold after any sequence of changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.capture.eventfeeds import vectors
from tidemill.capture.tikv.model import Region
from tidemill.capture.tikv.regions.range_lock import RangeLock, Verdict

A, Z = b"a", b"z"


@dataclass(eq=False)
class Part:
    start: bytes
    end: bytes
    resolved_ts: int
    region: Region | None = None


def region(id_: int, version: int) -> Region:
    return Region(id_, b"", b"", 1, version, None)


class Span:
    """A range lock that is used as TiCDC's is: lock, advance, unlock."""

    def __init__(self, ts: int) -> None:
        self.lock = RangeLock(Part(A, Z, ts))

    def take(self, start: bytes, end: bytes, holder: Region) -> Part:
        """Lock a free range: the unlocked parts in it are cut."""
        old = self.lock.touching(start, end)
        new = [Part(start, end, min(p.resolved_ts for p in old))]
        if old[0].start < start:
            new.insert(0, Part(old[0].start, start, old[0].resolved_ts))
        if end < old[-1].end:
            new.append(Part(end, old[-1].end, old[-1].resolved_ts))
        self.lock.replace(old, new)
        taken = next(p for p in new if (p.start, p.end) == (start, end))
        self.lock.lock(taken, holder)
        return taken


def test_recorded_runs() -> None:
    cases = vectors("rangelock_cases")
    assert len(cases) == 150
    for case in cases:
        span = Span(10)
        held: dict[tuple[str, str], Part] = {}
        for op in case["ops"]:
            _step(span, held, op)
            span.lock.check()
            assert span.lock.resolved() == op["span_resolved_ts_after"], (case["seed"], op)


def _step(span: Span, held: dict[tuple[str, str], Part], op: dict[str, Any]) -> None:
    key = op["start"], op["end"]
    start, end = op["start"].encode(), op["end"].encode()
    if op["op"] == "lock":
        answer = span.lock.ask(start, end, op["region"], op["version"])
        assert answer.verdict.value == op["status"], op
        if answer.verdict is Verdict.FREE:
            held[key] = span.take(start, end, region(op["region"], op["version"]))
            assert held[key].resolved_ts == op["resolved_ts"]
        elif answer.verdict is Verdict.STALE:
            assert [[a.decode(), b.decode()] for a, b in answer.retry] == (op.get("retry_ranges") or []), op
    elif op["op"] == "advance":
        held[key].resolved_ts = op["resolved_ts"]
    else:
        span.lock.unlock(held.pop(key))


def test_what_would_leave_a_hole_is_refused() -> None:
    lock = RangeLock(Part(A, Z, 10))
    (whole,) = lock
    for new in ([Part(A, b"m", 10)], [Part(A, b"m", 10), Part(b"n", Z, 10)], [Part(b"b", Z, 10)]):
        with pytest.raises(ValueError, match="do not cover"):
            lock.replace([whole], new)
    lock.lock(whole, region(1, 1))
    with pytest.raises(ValueError, match="unlocked"):
        lock.replace([whole], [Part(A, b"m", 10), Part(b"m", Z, 10)])
    lock.check()


KEYS = st.integers(0, 24).map(lambda i: bytes([97 + i]))


class Churn(RuleBasedStateMachine):
    """Any operations in any order: the parts cover the span without overlap, and its resolved ts never goes back."""

    def __init__(self) -> None:
        super().__init__()
        self.span = Span(10)
        self.held: list[Part] = []
        self.before = 10

    @rule(first=KEYS, second=KEYS, id_=st.integers(1, 6), version=st.integers(1, 5))
    def lock(self, first: bytes, second: bytes, id_: int, version: int) -> None:
        start, end = min(first, second), max(first, second) + b"!"
        answer = self.span.lock.ask(start, end, id_, version)
        others = [p.region for p in self.held if (p.start < end and start < p.end) or (p.region and p.region.id == id_)]
        if not others:
            assert answer.verdict is Verdict.FREE
            self.held.append(self.span.take(start, end, region(id_, version)))
        elif all(r is not None and r.version < version for r in others):
            assert answer.verdict is Verdict.WAIT
        else:
            assert answer.verdict is Verdict.STALE

    @precondition(lambda self: self.held)
    @rule(i=st.integers(0, 99), by=st.integers(1, 20))
    def advance(self, i: int, by: int) -> None:
        self.held[i % len(self.held)].resolved_ts += by

    @precondition(lambda self: self.held)
    @rule(i=st.integers(0, 99))
    def unlock(self, i: int) -> None:
        self.span.lock.unlock(self.held.pop(i % len(self.held)))

    @invariant()
    def covered(self) -> None:
        self.span.lock.check()
        assert (self.span.lock.start, self.span.lock.end) == (A, Z)
        assert sum(p.region is not None for p in self.span.lock) == len(self.held)
        assert self.span.lock.resolved() >= self.before
        self.before = self.span.lock.resolved()


TestChurn = Churn.TestCase
TestChurn.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
