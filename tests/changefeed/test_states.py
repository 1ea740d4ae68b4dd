"""The table of a changefeed's states."""

from __future__ import annotations

import pytest

from tidemill.changefeed.states import TRANSITIONS, Event, State, after


def test_the_usual_life() -> None:
    state = State.NORMAL
    for event, expected in (
        (Event.STARTED, State.NORMAL),
        (Event.ADVANCED, State.NORMAL),
        (Event.RETRYING, State.WARNING),
        (Event.RETRYING, State.WARNING),
        (Event.ADVANCED, State.NORMAL),
        (Event.PAUSED, State.STOPPED),
        (Event.RESUMED, State.NORMAL),
        (Event.GAVE_UP, State.FAILED),
        (Event.STARTED, State.NORMAL),
        (Event.TARGET_REACHED, State.FINISHED),
        (Event.STARTED, State.NORMAL),
    ):
        state = after(state, event)
        assert state is expected


def test_what_is_not_in_the_table_cannot_be() -> None:
    for state in State:
        for event in Event:
            if (state, event) in TRANSITIONS:
                assert after(state, event) is TRANSITIONS[state, event]
            else:
                with pytest.raises(ValueError, match="cannot be"):
                    after(state, event)
    assert (State.STOPPED, Event.ADVANCED) not in TRANSITIONS
    assert (State.STOPPED, Event.STARTED) not in TRANSITIONS


def test_every_state_can_be_reached_and_left() -> None:
    assert {*TRANSITIONS.values()} == {*State}
    assert {state for state, _ in TRANSITIONS} == {*State}
