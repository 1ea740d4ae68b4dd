"""The states of a changefeed and what leads from one to another: TiCDC's names, as a table."""

from __future__ import annotations

import enum
from collections.abc import Mapping


class State(enum.StrEnum):
    """What a changefeed is at."""

    NORMAL = "normal"  # delivers
    WARNING = "warning"  # a batch failed and is tried again
    FAILED = "failed"  # it ended with an error that trying again does not mend
    STOPPED = "stopped"  # a person paused it
    FINISHED = "finished"  # its target ts is reached


class Event(enum.StrEnum):
    """What happens to a changefeed."""

    STARTED = "started"  # its process began
    ADVANCED = "advanced"  # the checkpoint moved
    RETRYING = "retrying"  # a batch failed and will be tried again
    GAVE_UP = "gave up"  # an error ended it
    TARGET_REACHED = "target reached"
    PAUSED = "paused"
    RESUMED = "resumed"


_RUNS = (State.NORMAL, State.WARNING)

TRANSITIONS: Mapping[tuple[State, Event], State] = {
    **{(state, Event.STARTED): State.NORMAL for state in (*_RUNS, State.FAILED, State.FINISHED)},
    **{(state, Event.ADVANCED): State.NORMAL for state in _RUNS},
    **{(state, Event.RETRYING): State.WARNING for state in _RUNS},
    **{(state, Event.GAVE_UP): State.FAILED for state in _RUNS},
    **{(state, Event.TARGET_REACHED): State.FINISHED for state in _RUNS},
    **{(state, Event.PAUSED): State.STOPPED for state in (*_RUNS, State.FAILED)},
    **{(state, Event.RESUMED): State.NORMAL for state in (State.STOPPED, State.FAILED, State.FINISHED)},
}
"""The state after an event. A pair that is not here cannot be."""


def after(state: State, event: Event) -> State:
    """The next state. Raises ValueError for an event that the state does not allow."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise ValueError(f"a changefeed that is {state} cannot be {event}") from None
