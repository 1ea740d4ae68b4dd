"""Schedules of two or three drivers: what happens at which effect, made from a seed, run, and shrunk when a run fails.

A schedule is a list of events. The effects of drivers that lead are counted; an event comes at one of them:

    Freeze(at, wakes, burst)    it stands still, another driver takes over. It wakes after `wakes` effects of others, for `burst` effects
                                of its own (0: all that it has), and on until it holds no lock
    Kill(at, behind)            it ends before or behind the effect, another driver takes over
    Fail(at, lost)              the effect is answered 503, or is done and its answer is lost
    Outage(at)                  the power is lost: all drivers end, and what was not synced is gone
    Behind(at)                  the next listing shows what was there some changes ago

At the end the driver that leads reaches the goal; then each frozen one wakes and runs to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.support.simulate.actors import Actor, Fate
from tests.support.simulate.power import PowerSupply
from tidemill.errors import Fenced, TidemillError

MOST_DRIVERS = 4
MOST_EFFECTS = 20_000
HOLDING = "in a transaction: "
"""Begins the effects at which a driver holds locks that others wait for: none stands still there, and no other one runs meanwhile."""


@dataclass(frozen=True)
class Freeze:
    at: int
    wakes: int
    burst: int


@dataclass(frozen=True)
class Kill:
    at: int
    behind: bool


@dataclass(frozen=True)
class Fail:
    at: int
    lost: bool


@dataclass(frozen=True)
class Behind:
    at: int


@dataclass(frozen=True)
class Outage:
    at: int


Event = Freeze | Kill | Fail | Behind | Outage
KINDS: tuple[type[Event], ...] = (Freeze, Kill, Fail, Behind, Outage)


def made(seed: int, effects: int, *, behind: bool = False, outages: bool = False) -> list[Event]:
    """The schedule of a seed. `effects`: of a run without events; `behind`: whether there are listings that show the past; `outages`:
    whether the power may be lost."""
    rng = Random(seed)
    events: list[Event] = []
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(effects)
        kind = rng.random()
        if kind < 0.5:
            events.append(Freeze(at, rng.choice((1, 3, 10, 30, 100, effects)), rng.choice((0, 0, 1, 2, 5, 20))))
        elif kind < 0.75:
            events.append(Kill(at, rng.random() < 0.5))
        else:
            events.append(Fail(at, rng.random() < 0.5))
    if behind:
        events += [Behind(rng.randrange(effects)) for _ in range(rng.randint(0, 2))]
    if outages:
        events += [Outage(rng.randrange(effects)) for _ in range(rng.randint(1, 2))]
    return sorted(events, key=lambda event: event.at)


@dataclass
class _Frozen:
    actor: Actor
    wakes: int
    burst: int


@dataclass
class Run:
    """One run of a schedule. `body`: a driver, until everything is delivered. `check`: raises AssertionError for what no reader may see;
    called after each effect of a driver that does not lead, and after each that may move what readers see. `after_outage`: called before
    that when the power was lost, which may take what readers saw before it was durable."""

    body: Callable[[Actor], None]
    check: Callable[[], None]
    power: PowerSupply | None = None
    after_outage: Callable[[], None] = lambda: None
    story: list[str] = field(default_factory=list)
    effects: int = 0
    names: list[str] = field(default_factory=list)
    _drivers: int = 0
    _frozen: list[_Frozen] = field(default_factory=list)

    def play(self, events: Sequence[Event]) -> None:
        """Run to the goal. Raises AssertionError with the story."""
        waiting = list(events)
        leader = self._next()
        while leader.effect is not None or _again(leader.error):
            assert self.effects < MOST_EFFECTS, self._told("the drivers come to no end")
            if leader.effect is None:
                leader = self._next()
                continue
            due = waiting and waiting[0].at <= self.effects and _may(waiting[0], leader)
            leader = self._lead(leader, waiting.pop(0) if due else None)
            self._wake(leader)
        self._ended(leader, leads=True)
        while self._frozen:
            frozen = self._frozen.pop(0)
            self.story.append(f"{frozen.actor.name} wakes at `{frozen.actor.effect}`")
            self._let(frozen.actor, 0)
        self._check()

    def _check(self) -> None:
        try:
            self.check()
        except (AssertionError, TidemillError) as error:
            raise AssertionError(self._told(str(error))) from error

    def _next(self) -> Actor:
        self._drivers += 1
        actor = Actor(f"driver {self._drivers}", self.body)
        actor.start()
        return actor

    def _lead(self, leader: Actor, event: Event | None) -> Actor:
        self.effects += 1
        effect = leader.effect
        self.names.append(effect or "")
        match event:
            case Freeze(_, wakes, burst) if self._drivers < MOST_DRIVERS:
                self.story.append(f"{leader.name} freezes before its effect {leader.effects}, `{effect}`; wakes after {wakes} of others")
                self._frozen.append(_Frozen(leader, wakes, burst))
                return self._next()
            case Kill(_, behind):
                self.story.append(f"{leader.name} ends {'behind' if behind else 'before'} its effect {leader.effects}, `{effect}`")
                leader.go(Fate.KILLED_AFTER if behind else Fate.KILLED_BEFORE)
                while leader.effect is not None:
                    leader.go(Fate.KILLED_BEFORE)
                self._check()
                return self._next()
            case Fail(_, lost):
                self.story.append(f"{leader.name}: its effect {leader.effects}, `{effect}`, {Fate.LOST.value if lost else Fate.AWAY.value}")
                leader.go(Fate.LOST if lost else Fate.AWAY)
            case Outage() if self.power is not None:
                self.story.append(f"the power is lost before effect {leader.effects} of {leader.name}, `{effect}`")
                self._lose_power(leader, self.power)
                return self._next()
            case Behind():
                self.story.append(f"{leader.name}: its effect {leader.effects}, `{effect}`, {Fate.BEHIND.value}")
                leader.go(Fate.BEHIND)
            case _:
                leader.go(Fate.DONE)
        if effect is not None and not effect.removeprefix(HOLDING).startswith(("read", "list")):
            self._check()
        return leader

    def _lose_power(self, leader: Actor, power: PowerSupply) -> None:
        power.go_off()
        for actor in (leader, *(frozen.actor for frozen in self._frozen)):
            while actor.effect is not None:
                actor.go(Fate.KILLED_BEFORE)
        self._frozen.clear()
        power.come_back()
        self.after_outage()
        self._check()

    def _wake(self, leader: Actor) -> None:
        for frozen in list(self._frozen):
            frozen.wakes -= 1
            if frozen.wakes <= 0 and not _holds(leader):
                self.story.append(f"{frozen.actor.name} wakes at `{frozen.actor.effect}`")
                self._let(frozen.actor, frozen.burst)
                frozen.wakes = MOST_EFFECTS
                if frozen.actor.effect is None:
                    self._frozen.remove(frozen)

    def _let(self, actor: Actor, burst: int) -> None:
        """Let a driver that does not lead take some effects; 0: all that it has."""
        actor.late = True
        left = burst or MOST_EFFECTS
        while actor.effect is not None:
            self.story.append(f"    {actor.name}: {actor.effect}")
            actor.go(Fate.DONE)
            self._check()
            left -= 1
            if left <= 0 and not _holds(actor) and not actor.locks:
                return
        self._ended(actor, leads=False)

    def _ended(self, actor: Actor, *, leads: bool) -> None:
        if actor.error is not None and (leads or not _again(actor.error)):
            raise AssertionError(self._told(f"{actor.name} ended with {actor.error!r}")) from actor.error

    def _told(self, what: str) -> str:
        return "\n".join([what, *self.story])


def _holds(actor: Actor) -> bool:
    return actor.effect is not None and actor.effect.startswith(HOLDING)


def _may(event: Event, leader: Actor) -> bool:
    """Whether an event that is due may come at the effect at which the driver that leads stands."""
    if isinstance(event, Behind):
        return leader.effect is not None and leader.effect.startswith("list")
    return not (isinstance(event, Freeze) and _holds(leader))


def _again(error: BaseException | None) -> bool:
    """Whether another driver follows one that ended so: it was fenced off, or a start met an error that may pass."""
    return isinstance(error, Fenced) or (isinstance(error, TidemillError) and error.retryable)


def shrunk(events: Sequence[Event], fails: Callable[[Sequence[Event]], bool]) -> list[Event]:
    """The shortest part of a schedule that still fails."""
    shortest = list(events)
    for event in list(events):
        without = [one for one in shortest if one is not event]
        if fails(without):
            shortest = without
    return shortest
