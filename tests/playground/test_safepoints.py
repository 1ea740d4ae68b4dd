"""PD's rules of service safe points, as the recording `pd_calls` shows them."""

from __future__ import annotations

import pytest

from tidemill.playground.store.safepoints import GC_WORKER, SafePoints


class Clock:
    def __init__(self) -> None:
        self.now = 1000

    def __call__(self) -> int:
        return self.now


def test_the_answer_is_always_the_minimum() -> None:
    points = SafePoints(Clock())
    assert points.update(b"a", 60, 100).service_id == GC_WORKER
    points.advance_gc(50)
    assert points.update(b"b", 60, 70).service_id == GC_WORKER
    points.advance_gc(1000)
    assert points.minimum().service_id in (GC_WORKER, b"b")
    assert points.collected == 70, "garbage collection stops at the lowest service"


def test_a_claim_below_the_minimum_is_silently_not_stored() -> None:
    points = SafePoints(Clock())
    points.advance_gc(500)
    answer = points.update(b"late", 60, 1)
    assert (answer.service_id, answer.safe_point) == (GC_WORKER, 500)
    assert [s.service_id for s in points.services()] == [GC_WORKER]


def test_claims_expire() -> None:
    clock = Clock()
    points = SafePoints(clock)
    points.update(b"short", 10, 5)
    clock.now += 9
    assert points.advance_gc(100) == 5
    clock.now += 1
    assert points.advance_gc(100) == 100


def test_a_ttl_of_zero_removes() -> None:
    points = SafePoints(Clock())
    points.update(b"a", 60, 5)
    points.update(b"a", 0, 1 << 62)
    assert points.advance_gc(100) == 100
    with pytest.raises(ValueError, match="cannot remove service safe point of gc_worker"):
        points.update(GC_WORKER, 0, 0)


def test_a_claim_may_move_backwards_but_not_below_the_minimum() -> None:
    points = SafePoints(Clock())
    points.update(b"a", 60, 50)
    points.update(b"a", 60, 20)
    assert points.advance_gc(100) == 20
