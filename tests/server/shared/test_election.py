"""The election as scenarios: what each server of a log sees and decides, against one lease."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tidemill.server.shared import election as m
from tidemill.server.shared.election import Lease, Phase

TTL = 6.0


@dataclass
class Store:
    """The lease as the servers see it."""

    lease: Lease | None = None

    def swap(self, before: Lease | None, after: Lease) -> bool:
        if self.lease != before:
            return False
        self.lease = after
        return True


@dataclass
class Server:
    """One server: carries out what its machine decides, at once. Its clock is its own."""

    name: str
    store: Store
    clock: float = 0.0
    state: m.State = field(init=False)
    did: list[m.Action] = field(default_factory=list)
    begins: bool = True
    """Whether a takeover ends at once."""

    def __post_init__(self) -> None:
        self.state = m.State(self.name)

    def take_in(self, event: m.Event) -> None:
        self.state, actions = m.decide(self.state, event)
        for action in actions:
            self.did.append(action)
            self._act(action)

    def _act(self, action: m.Action) -> None:
        match action:
            case m.Look():
                self.take_in(m.Looked(self.clock, self.store.lease))
            case m.Take(seen):
                self._ask(seen, Lease((seen.term if seen else 0) + 1, self.name, 1, TTL))
            case m.Renew(mine):
                self._ask(mine, replace(mine, beat=mine.beat + 1))
            case m.TakeOver() if self.begins:
                self.take_in(m.TookOver())
            case m.Leave():
                self.take_in(m.Left(self.clock))
            case m.Free(mine):
                self.store.swap(mine, replace(mine, beat=mine.beat + 1, free=True))

    def _ask(self, before: Lease | None, after: Lease) -> None:
        if self.store.swap(before, after):
            self.take_in(m.Held(self.clock, after))
        else:
            self.take_in(m.Lost(self.clock, self.store.lease))

    @property
    def leads(self) -> bool:
        return self.state.leads(self.clock)


def two() -> tuple[Server, Server]:
    """Two servers whose clocks have nothing to do with each other; the first one leads."""
    store = Store()
    one, other = Server("one", store, 1000.0), Server("other", store, 5.0)
    pass_time(0.0, one, other)
    assert (one.leads, other.leads) == (True, False)
    return one, other


def pass_time(seconds: float, *servers: Server) -> None:
    """Time passes, with a beat of each server every third of the TTL."""
    left = seconds
    while True:
        for server in servers:
            server.take_in(m.Ticked())
        if left <= 0:
            return
        step = min(left, TTL / 3)
        left -= step
        for server in servers:
            server.clock += step


def test_the_first_server_leads_and_the_second_one_follows_for_as_long_as_it_hears_of_it() -> None:
    one, other = two()
    pass_time(100 * TTL, one, other)
    assert (one.leads, other.leads, other.state.phase) == (True, False, Phase.FOLLOWS)
    assert one.store.lease is not None
    assert one.store.lease.term == 1


def test_a_leader_that_dies_is_followed_after_a_ttl_and_not_before() -> None:
    one, other = two()
    pass_time(TTL - 0.1, other)
    assert not other.leads
    pass_time(TTL / 3, other)
    assert other.leads
    assert other.store.lease is not None
    assert (other.store.lease.term, other.store.lease.holder) == (2, "other")
    assert one.store is other.store


def test_a_frozen_leader_that_wakes_answers_for_nobody_and_stops_with_its_first_beat() -> None:
    one, other = two()
    one.clock += 3 * TTL  # it stands still; its clock goes on
    pass_time(2 * TTL, other)
    assert other.leads
    assert not one.leads, "although it has not heard of the other one yet"
    one.take_in(m.Ticked())
    assert m.Leave(at_once=True) in one.did
    assert (one.state.phase, one.leads, other.leads) == (Phase.FOLLOWS, False, True)
    pass_time(10 * TTL, one, other)
    assert (one.leads, other.leads) == (False, True)


def test_no_two_lead_at_once_wherever_one_freezes() -> None:
    for frozen_after in range(12):
        one, other = two()
        pass_time(frozen_after * TTL / 7, one, other)
        for _ in range(40):
            one.clock += TTL / 9
            other.clock += TTL / 9
            other.take_in(m.Ticked())
            assert not (one.leads and other.leads)
        assert other.leads


def test_storage_that_is_away_ends_nothing_but_the_right_to_answer() -> None:
    one, _ = two()
    one.did.clear()
    one.clock += 10 * TTL  # no request came through
    assert not one.leads
    one.take_in(m.Ticked())
    assert one.leads, "nobody else has taken the lease"
    assert not any(isinstance(action, m.Leave) for action in one.did)


def test_a_server_that_resigns_ends_in_good_order_and_another_one_leads_at_once() -> None:
    one, other = two()
    one.take_in(m.Resigned(2 * TTL))
    assert m.Leave(at_once=False) in one.did
    assert one.store.lease is not None
    assert one.store.lease.free
    pass_time(0.0, one, other)
    assert (one.leads, other.leads) == (False, True)


def test_one_that_resigns_leads_again_if_nobody_else_does() -> None:
    one, _ = two()
    one.take_in(m.Resigned(2 * TTL))
    pass_time(TTL, one)
    assert not one.leads
    pass_time(2 * TTL, one)
    assert one.leads


def test_the_lease_is_kept_while_batches_end() -> None:
    one, other = two()
    one.did.clear()
    one.state, actions = m.decide(one.state, m.Resigned(TTL))
    assert actions == (m.Leave(at_once=False),)
    pass_time(5 * TTL, one, other)  # its batches take long
    assert (one.state.phase, other.leads) == (Phase.LEAVES, False)
    one.take_in(m.Left(one.clock))
    pass_time(0.0, one, other)  # it has the first look, and leaves the lease to others all the same
    assert (one.leads, other.leads) == (False, True)


def test_one_that_cannot_begin_leaves_the_lease_to_others_for_a_while() -> None:
    one, other = two()
    one.take_in(m.Failed())
    pass_time(0.0, one, other)
    assert (one.leads, other.leads) == (False, True)


def test_a_server_that_is_started_again_leads_at_once() -> None:
    """Its data directory was locked by the process before it: that one has ended."""
    one, _ = two()
    again = Server("one", one.store, 7.0)
    again.take_in(m.Ticked())
    assert again.leads
    assert again.store.lease is not None
    assert again.store.lease.term == 2


def test_a_lease_that_was_lost_while_it_took_over() -> None:
    one, other = two()
    one.clock += 3 * TTL
    other.begins = False
    pass_time(2 * TTL, other)
    assert other.state.phase is Phase.TAKES
    one.take_in(m.Ticked())
    third = Server("third", one.store)
    other.clock += 3 * TTL
    pass_time(2 * TTL, third)
    other.take_in(m.Ticked())
    assert (third.leads, other.state.phase) == (True, Phase.FOLLOWS)
    other.take_in(m.TookOver())
    assert other.state.phase is Phase.FOLLOWS, "the end of a takeover that is over means nothing"
