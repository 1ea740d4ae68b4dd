"""Histograms count, travel through JSON, and are refused where they are broken."""

from __future__ import annotations

import json
import random

import pytest

from tidemill.metrics.histogram import Histogram, Histograms, all_from, from_dict, together
from tidemill.metrics.rate import Rate


def test_a_value_is_counted_at_the_first_bound_that_holds_it() -> None:
    made = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 9.0):
        made.observe(value)
    assert made.buckets() == [("1.0", 2.0), ("2.0", 4.0), ("+Inf", 5.0)]
    assert (made.count, made.sum) == (5, 14.0)


def test_through_json_and_together() -> None:
    rng = random.Random(7)
    parts, plain = [Histograms(("seal",)) for _ in range(3)], Histogram()
    for _ in range(500):
        value = rng.expovariate(1)
        rng.choice(parts).observe("seal", value)
        plain.observe(value)
    told = [json.loads(json.dumps(part.as_dict())) for part in parts]
    whole = all_from(together(told))["seal"]
    assert whole.counts == plain.counts
    assert whole.sum == pytest.approx(plain.sum, abs=1e-5)


@pytest.mark.parametrize(
    "broken",
    [
        None,
        [],
        {},
        {"le": [], "n": [], "sum": 0},
        {"le": [1, 2], "n": [0, 0], "sum": 0},
        {"le": [2, 1], "n": [0, 0, 0], "sum": 0},
        {"le": [1, 2], "n": [0, -1, 0], "sum": 0},
        {"le": [1, 2], "n": [0, 0.5, 0], "sum": 0},
        {"le": [1, 2], "n": [0, 0, "x"], "sum": 0},
        {"le": [1, float("nan")], "n": [0, 0, 0], "sum": 0},
        {"le": [1, 2], "n": [0, 0, 0], "sum": float("inf")},
        {"le": [1, 2], "n": [0, 0, 0]},
    ],
)
def test_a_broken_one_counts_as_lost(broken: object) -> None:
    assert from_dict(broken) is None
    assert all_from({"seal": broken}) == {}


def test_a_rate_is_that_of_the_last_minute() -> None:
    rate = Rate()
    assert rate.per_second == 0.0
    for second in range(200):
        rate.note(10 * second if second < 100 else 1000, float(second))
    assert rate.per_second == 0.0
    rate.note(1600, 200.0)
    assert rate.per_second == 10.0
    rate.note(5, 201.0)  # begun again
    assert rate.per_second == 0.0
    rate.note(7, 202.0)
    assert rate.per_second == 2.0
