"""The table of a changefeed's states."""

from __future__ import annotations

import pytest

from tidemill.changefeed.states import KEPT, TRANSITIONS, Event, State, after

N, W, P, F, S, D, R = KEPT_AND_REMOVED = tuple(State)
TABLE = {
    # event:              from normal, warning, pending, failed, stopped, finished, removed
    Event.RESUMED: (N, N, N, N, N, N, None),
    Event.ADVANCED: (N, N, None, None, None, None, None),
    Event.ERRED: (W, W, None, None, None, None, None),
    Event.PUT_OFF: (None, P, None, None, None, None, None),
    Event.RETRIED: (None, None, W, None, None, None, None),
    Event.STUCK: (None, F, None, None, None, None, None),
    Event.REFUSED: (F, F, None, None, None, None, None),
    Event.EXPIRED: (F, F, F, F, F, None, None),
    Event.TARGET_REACHED: (D, D, None, None, None, None, None),
    Event.PAUSED: (S, S, S, S, S, None, None),
    Event.REMOVED: (R, R, R, R, R, R, None),
}


@pytest.mark.parametrize("event", Event)
def test_every_transition(event: Event) -> None:
    for state, expected in zip(KEPT_AND_REMOVED, TABLE[event], strict=True):
        if expected is None:
            with pytest.raises(ValueError, match=f"{state} cannot be {event}"):
                after(state, event)
        else:
            assert after(state, event) is expected


def test_every_state_can_be_reached_and_all_but_removed_be_left_again() -> None:
    for begin in KEPT:
        reached, new = {begin}, {begin}
        while new:
            new = {to for (state, _), to in TRANSITIONS.items() if state in new} - reached
            reached |= new
        assert reached == set(State)


def test_a_usual_life() -> None:
    state = State.NORMAL
    for event, expected in (
        (Event.RESUMED, N),
        (Event.ADVANCED, N),
        (Event.ERRED, W),
        (Event.ERRED, W),
        (Event.ADVANCED, N),
        (Event.ERRED, W),
        (Event.PUT_OFF, P),
        (Event.RETRIED, W),
        (Event.ERRED, W),
        (Event.STUCK, F),
        (Event.PAUSED, S),
        (Event.RESUMED, N),
        (Event.REFUSED, F),
        (Event.RESUMED, N),
        (Event.TARGET_REACHED, D),
        (Event.RESUMED, N),
        (Event.REMOVED, R),
    ):
        state = after(state, event)
        assert state is expected
