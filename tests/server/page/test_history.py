"""The history of an hour: a ring of points, the same times for all changefeeds."""

from __future__ import annotations

from tidemill.server.page.history import OVERVIEW_POINTS, POINTS, STEP_S, History, Point


def filled(points: int) -> History:
    history = History()
    for i in range(points):
        history.note(i * STEP_S, {"a": Point(float(i), 1.0, 2.5)} | ({"b": Point(7.0, 1.0, 0.0)} if i >= 3 else {}))
    return history


def test_nothing_yet() -> None:
    assert History().of("a") == {"times": [], "checkpoint_lag_s": [], "resolved_lag_s": [], "rows_per_s": []}
    assert History().lags() == {"times": [], "checkpoint_lag_s": {}}
    assert History().rows_per_s("a") == 0.0


def test_points_in_order_and_none_before_a_changefeed_was_there() -> None:
    history = filled(5)
    assert history.of("a") == {
        "times": [0, 10, 20, 30, 40],
        "checkpoint_lag_s": [0, 1, 2, 3, 4],
        "resolved_lag_s": [1] * 5,
        "rows_per_s": [2.5] * 5,
    }
    assert history.of("b")["checkpoint_lag_s"] == [None, None, None, 7.0, 7.0]
    assert history.rows_per_s("a") == 2.5


def test_an_hour_is_kept() -> None:
    found = filled(POINTS + 25).of("a")
    assert len(found["times"]) == POINTS
    assert found["checkpoint_lag_s"][0] == 25
    assert found["checkpoint_lag_s"][-1] == POINTS + 24


def test_all_changefeeds_at_fewer_times_with_the_last_one() -> None:
    found = filled(POINTS + 1).lags()
    assert len(found["times"]) == OVERVIEW_POINTS
    assert found["times"][-1] == POINTS * STEP_S
    assert found["times"] == sorted(found["times"])
    assert found["checkpoint_lag_s"]["a"][-1] == POINTS


def test_a_changefeed_that_is_gone_is_forgotten_and_begins_again() -> None:
    history = filled(4)
    history.note(40, {"a": Point(4.0, 1.0, 0.0)})
    assert history.of("b")["times"] == []
    history.note(50, {"a": Point(5.0, 1.0, 0.0), "b": Point(1.0, 1.0, 0.0)})
    assert history.of("b")["checkpoint_lag_s"] == [None] * 5 + [1.0]
