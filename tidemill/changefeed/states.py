"""The states of a changefeed and what leads from one to another: TiCDC's names, as a table.

normal ──erred──▶ warning ──stuck──▶ failed ──resumed──▶ normal
   ▲                 │
   └────advanced─────┘        refused: at once from normal or warning to failed
"""

from __future__ import annotations

import enum
from collections.abc import Mapping


class State(enum.StrEnum):
    """The state of a changefeed."""

    NORMAL = "normal"  # delivers
    WARNING = "warning"  # an error came that may pass; it is tried again
    FAILED = "failed"  # it is not tried again until a person resumes it
    FINISHED = "finished"  # its target ts is reached


class Event(enum.StrEnum):
    """What happens to a changefeed."""

    RESUMED = "resumed"  # a person started it, or resumed it
    ADVANCED = "advanced"  # the checkpoint moved
    ERRED = "erred"  # an error came that may pass
    STUCK = "stuck"  # such errors came for too long without progress
    REFUSED = "refused"  # an error came that does not pass when it is tried again
    TARGET_REACHED = "target reached"


RUNS = (State.NORMAL, State.WARNING)
"""The states of a changefeed that delivers, or tries to."""

TRANSITIONS: Mapping[tuple[State, Event], State] = {
    **{(state, Event.RESUMED): State.NORMAL for state in State},
    **{(state, Event.ADVANCED): State.NORMAL for state in RUNS},
    **{(state, Event.ERRED): State.WARNING for state in RUNS},
    (State.WARNING, Event.STUCK): State.FAILED,
    **{(state, Event.REFUSED): State.FAILED for state in RUNS},
    **{(state, Event.TARGET_REACHED): State.FINISHED for state in RUNS},
}
"""The state after an event. A pair that is not here does not occur; tests/changefeed/test_reachable_states.py shows that all others do."""


def after(state: State, event: Event) -> State:
    """The next state. Raises ValueError for an event that the state does not allow."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise ValueError(f"a changefeed that is {state} cannot be {event}") from None
