"""Which server leads. Pure: events in, actions out, by a table of transitions.

The lease is an object that all servers see. It names the server that leads, its term, and a beat that it raises every third of the TTL. A
server that has seen the same beat for a whole TTL takes the lease, with the next term. The one that leads answers for the others only
until nine tenths of the TTL after it asked for its last beat. It keeps its capture and its host until it sees that another one leads:
fences end those of an earlier term, and storage may be away for hours. All times are seconds of a clock that goes on while the machine
sleeps; those of two servers are never compared.

    phase     event         next     what the server does
    FOLLOWS   Ticked        FOLLOWS  looks at the lease
    FOLLOWS   Looked        FOLLOWS  takes the lease if it is free, its own, or over
    FOLLOWS   Held          TAKES    takes changefeeds, capture and host over
    TAKES     TookOver      LEADS    -
    TAKES     Failed, Lost  LEAVES   stops what it started, at once
    LEADS     Failed, Lost  LEAVES   stops everything at once
    LEADS     Resigned      LEAVES   lets each changefeed end its batch
    LEAVES    Left          FOLLOWS  frees the lease if it still has it
    all but FOLLOWS: Ticked          renews, while the lease is its own
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

SAFETY = 0.9
"""The part of the TTL after which a server that could not renew no longer answers as the leader."""


class Phase(enum.Enum):
    FOLLOWS = "follows"
    TAKES = "takes over"
    LEADS = "leads"
    LEAVES = "leaves"


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease as it is stored. `ttl`: seconds. `free`: its holder has given it up."""

    term: int
    holder: str
    beat: int
    ttl: float
    address: str = ""
    free: bool = False


# ---- events


@dataclass(frozen=True, slots=True)
class Ticked:
    """A third of the TTL is over."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The lease as it was found; None: nobody has ever had it."""

    now: float
    lease: Lease | None


@dataclass(frozen=True, slots=True)
class Held:
    """This server has the lease: it took it or renewed it, by a request that began at `asked`."""

    asked: float
    lease: Lease


@dataclass(frozen=True, slots=True)
class Lost:
    """Another server has the lease."""

    now: float
    lease: Lease | None


@dataclass(frozen=True, slots=True)
class TookOver:
    """Everything is started."""


@dataclass(frozen=True, slots=True)
class Failed:
    """What a takeover needs failed, or its end was found out by a refused write."""


@dataclass(frozen=True, slots=True)
class Resigned:
    """A person lets another server lead. `rests_s`: how long this one leaves it to others, once it has ended."""

    rests_s: float


@dataclass(frozen=True, slots=True)
class Left:
    """Everything is stopped."""

    now: float


Event = Ticked | Looked | Held | Lost | TookOver | Failed | Resigned | Left


# ---- actions


@dataclass(frozen=True, slots=True)
class Look:
    """Read the lease."""


@dataclass(frozen=True, slots=True)
class Take:
    """Take the lease, if it is still this one (None: if there is none)."""

    seen: Lease | None


@dataclass(frozen=True, slots=True)
class Renew:
    """Raise the beat of this server's lease."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Start leading."""

    term: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Stop leading. `at_once`: another server may lead already, so nothing is waited for."""

    at_once: bool


@dataclass(frozen=True, slots=True)
class Free:
    """Give the lease up, if it is still this server's."""

    lease: Lease


Action = Look | Take | Renew | TakeOver | Leave | Free


# ---- the machine


@dataclass(frozen=True, slots=True)
class State:
    """`seen_at`: since when the lease looks as it does. `valid_until`: until when this server may lead. `rests_s`: how long it leaves the
    lease to others once it has stopped everything, which may take longer than that; `rests_until`: until when that is."""

    me: str
    phase: Phase = Phase.FOLLOWS
    lease: Lease | None = None
    seen_at: float = 0.0
    valid_until: float = 0.0
    rests_until: float = 0.0
    rests_s: float = 0.0

    @property
    def is_mine(self) -> bool:
        """Whether the lease was this server's when it was last seen."""
        return self.lease is not None and self.lease.holder == self.me and not self.lease.free

    def leads(self, now: float) -> bool:
        """Whether this server may act as the leader."""
        return self.phase is Phase.LEADS and now < self.valid_until


Step = tuple[State, tuple[Action, ...]]


def decide(state: State, event: Event) -> Step:
    """Return what follows an event."""
    match event:
        case Ticked():
            return _ticked(state)
        case Looked(now, lease):
            return _looked(state, now, lease)
        case Held(asked, lease):
            return _held(state, asked, lease)
        case Lost(now, lease):
            seen = replace(state, lease=lease, seen_at=now)
            return _left_at_once(seen) if state.phase in _ACTIVE else (seen, ())
        case TookOver():
            return (replace(state, phase=Phase.LEADS), ()) if state.phase is Phase.TAKES else (state, ())
        case Failed():
            if state.phase not in _ACTIVE:
                return state, ()
            return _left_at_once(replace(state, rests_s=state.lease.ttl if state.lease is not None else 0.0))
        case Resigned(rests_s):
            if state.phase is not Phase.LEADS:
                return state, ()
            return replace(state, phase=Phase.LEAVES, rests_s=rests_s), (Leave(at_once=False),)
        case Left(now):
            if state.phase is not Phase.LEAVES:
                return state, ()
            freed = (Free(state.lease),) if state.is_mine and state.lease is not None else ()
            return replace(state, phase=Phase.FOLLOWS, rests_until=now + state.rests_s, rests_s=0.0), freed


_ACTIVE = (Phase.TAKES, Phase.LEADS)


def _left_at_once(state: State) -> Step:
    return replace(state, phase=Phase.LEAVES), (Leave(at_once=True),)


def _ticked(state: State) -> Step:
    if state.phase is Phase.FOLLOWS:
        return state, (Look(),)
    if state.lease is None or not state.is_mine:
        return state, ()
    return state, (Renew(state.lease),)  # also while it leaves: nobody else begins before it is done


def _looked(state: State, now: float, lease: Lease | None) -> Step:
    if state.phase is not Phase.FOLLOWS:
        return state, ()
    if lease != state.lease or not state.seen_at:
        state = replace(state, lease=lease, seen_at=now)
    own = lease is not None and lease.holder == state.me  # of the process before this one: its data directory was locked until it ended
    if now >= state.rests_until and (lease is None or lease.free or own or now - state.seen_at >= lease.ttl):
        return state, (Take(lease),)
    return state, ()


def _held(state: State, asked: float, lease: Lease) -> Step:
    held = replace(state, lease=lease, seen_at=asked, valid_until=asked + SAFETY * lease.ttl)
    if state.phase is Phase.FOLLOWS:
        return replace(held, phase=Phase.TAKES), (TakeOver(lease.term),)
    return held, ()
