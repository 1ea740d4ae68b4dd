"""The timestamp oracle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import tso
from tidemill.playground.store.oracle import LOGICAL_LIMIT, Oracle


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(1, LOGICAL_LIMIT - 1)), max_size=30))
def test_timestamps_grow_whatever_the_clock_does(steps: list[tuple[int, int]]) -> None:
    now = [1_700_000_000_000]
    oracle = Oracle(lambda: now[0])
    last = oracle.last
    for move, count in steps:
        now[0] += move
        ts = oracle.next(count)
        first = ts - count + 1
        assert first > last
        assert tso.physical_ms(first) == tso.physical_ms(ts)
        last = ts


def test_it_follows_the_clock() -> None:
    now = [1_700_000_000_000]
    oracle = Oracle(lambda: now[0])
    now[0] += 1000
    assert tso.physical_ms(oracle.next()) == now[0]


def test_it_can_be_pushed() -> None:
    oracle = Oracle(lambda: 1_700_000_000_000)
    oracle.advance(1 << 62)
    assert oracle.next() == (1 << 62) + 1


@pytest.mark.parametrize("count", [0, -1, LOGICAL_LIMIT])
def test_counts_that_no_millisecond_holds_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match="timestamps at once"):
        Oracle().next(count)
