"""What a conversation wants done, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemill.canal.conversation.cutting import Demand, Place, Selector
from tidemill.canal.conversation.faults import Fault
from tidemill.canal.conversation.subscriber import Subscriber
from tidemill.canal.frames import Bytes


@dataclass(frozen=True, slots=True)
class Send:
    """Bytes for the client; not before what was to be saved is safe."""

    parts: Sequence[Bytes]


@dataclass(frozen=True, slots=True)
class Save:
    """The client's record has changed. Not `now`: it need not be safe before the next answer."""

    client: Subscriber
    now: bool = True


@dataclass(frozen=True, slots=True)
class Fetch:
    """Cut a batch of what is behind `begin`, and call `fetched`. There is nothing for the client up to the commit_ts `upto`.
    `wait`: so many seconds for a full one, None without end; 0: take what is there. `any`: wait for any entry only. The conversation does
    nothing else meanwhile. A client's `turn` that changes makes the batch useless: then the client's place is to be asked for again by
    `fetched(None)`."""

    client: Subscriber
    selector: Selector
    demand: Demand
    begin: Place
    upto: int
    turn: int
    wait: float | None
    any: bool


@dataclass(frozen=True, slots=True)
class Wake:
    """What the client gets next has changed: its GETs on other connections look again."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Close the connection when nothing was read, or nothing written, for so many seconds."""

    read: float
    write: float


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection, for the log with a reason."""

    reason: str
    fault: Fault


Action = Send | Save | Fetch | Wake | Idle | Close
