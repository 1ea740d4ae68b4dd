"""The states of a changefeed and what leads from one to another: TiCDC's names, as a table.

normal ──erred──▶ warning ──stuck──▶ failed ──resumed──▶ normal
   ▲                │  ▲
   ├────advanced────┘  │retried
   │                put off ──▶ pending        refused: at once from normal or warning to failed
   └──resumed── stopped ◀──paused── any but finished and removed

`tidemill run` has no pending: its changefeed is in warning while it waits for the next process. It has neither stopped nor removed: there
a person stops the process.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping


class State(enum.StrEnum):
    """The state of a changefeed."""

    NORMAL = "normal"  # delivers
    WARNING = "warning"  # an error came that may pass; it is tried again
    PENDING = "pending"  # after such an error it waits before it begins again at its checkpoint
    FAILED = "failed"  # it is not tried again until a person resumes it
    STOPPED = "stopped"  # a person paused it
    FINISHED = "finished"  # its target ts is reached
    REMOVED = "removed"  # a person removed it; its state is no longer kept


class Event(enum.StrEnum):
    """What happens to a changefeed."""

    RESUMED = "resumed"  # a person started it, or resumed it
    ADVANCED = "advanced"  # the checkpoint moved
    ERRED = "erred"  # an error came that may pass
    PUT_OFF = "put off"  # it ended by such an error, and begins again after a pause
    RETRIED = "retried"  # that pause is over
    STUCK = "stuck"  # such errors came for too long without progress
    REFUSED = "refused"  # an error came that does not pass when it is tried again
    EXPIRED = "expired"  # the log does not keep for it any longer what it needs
    TARGET_REACHED = "target reached"
    PAUSED = "paused"  # a person paused it
    REMOVED = "removed"  # a person removed it


RUNS = (State.NORMAL, State.WARNING)
"""The states of a changefeed that delivers, or tries to."""
KEPT = tuple(state for state in State if state is not State.REMOVED)
"""The states of a changefeed that is there."""

TRANSITIONS: Mapping[tuple[State, Event], State] = {
    **{(state, Event.RESUMED): State.NORMAL for state in KEPT},
    **{(state, Event.ADVANCED): State.NORMAL for state in RUNS},
    **{(state, Event.ERRED): State.WARNING for state in RUNS},
    (State.WARNING, Event.PUT_OFF): State.PENDING,
    (State.PENDING, Event.RETRIED): State.WARNING,
    (State.WARNING, Event.STUCK): State.FAILED,
    **{(state, Event.REFUSED): State.FAILED for state in RUNS},
    **{(state, Event.EXPIRED): State.FAILED for state in (*RUNS, State.PENDING, State.STOPPED, State.FAILED)},
    **{(state, Event.TARGET_REACHED): State.FINISHED for state in RUNS},
    **{(state, Event.PAUSED): State.STOPPED for state in KEPT if state is not State.FINISHED},
    **{(state, Event.REMOVED): State.REMOVED for state in KEPT},
}
"""The state after an event. A pair that is not here does not occur; tests/changefeed/test_reachable_states.py shows that all others do."""


def after(state: State, event: Event) -> State:
    """The next state. Raises ValueError for an event that the state does not allow."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise ValueError(f"a changefeed that is {state} cannot be {event}") from None
