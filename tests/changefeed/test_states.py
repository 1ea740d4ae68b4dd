"""The table of a changefeed's states."""

from __future__ import annotations

import pytest

from tidemill.changefeed.states import TRANSITIONS, Event, State, after

N, W, F, D = State.NORMAL, State.WARNING, State.FAILED, State.FINISHED
TABLE = {
    # event:              from normal, warning, failed, finished
    Event.RESUMED: (N, N, N, N),
    Event.ADVANCED: (N, N, None, None),
    Event.ERRED: (W, W, None, None),
    Event.STUCK: (None, F, None, None),
    Event.REFUSED: (F, F, None, None),
    Event.TARGET_REACHED: (D, D, None, None),
}


@pytest.mark.parametrize("event", Event)
def test_every_transition(event: Event) -> None:
    for state, expected in zip((N, W, F, D), TABLE[event], strict=True):
        if expected is None:
            with pytest.raises(ValueError, match=f"{state} cannot be {event}"):
                after(state, event)
        else:
            assert after(state, event) is expected


def test_every_state_can_be_reached_and_left_again() -> None:
    for begin in State:
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
        (Event.STUCK, F),
        (Event.RESUMED, N),
        (Event.REFUSED, F),
        (Event.RESUMED, N),
        (Event.TARGET_REACHED, D),
        (Event.RESUMED, N),
    ):
        state = after(state, event)
        assert state is expected
