"""Metrics of who leads, from the states of an election."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidemill.server.shared import election as m
from tidemill.server.shared.leading import Leading

TTL = 6.0
OTHERS = m.Lease(4, "other", 9, TTL)


class Watched:
    """A server whose election is told to `Leading`."""

    def __init__(self) -> None:
        self.state, self.leading = m.State("me"), Leading()

    def at(self, now: float, event: m.Event) -> None:
        before = self.state
        self.state, _ = m.decide(before, event)
        self.leading.moved(before, self.state, now)

    def told(self, now: float) -> dict[str, float]:
        samples = self.leading.samples(self.state, 2, now, away=False)
        return {"_".join((one.name.removeprefix("tidemill_server_"), *one.labels.values())): one.value for one in samples}


@pytest.fixture
def server() -> Watched:
    return Watched()


def test_before_anybody_leads_there_is_no_age(server: Watched) -> None:
    assert server.told(0.0) == {"leads": 0, "term": 0, "lease_away": 0, "members": 2, "takeovers": 0}


def test_a_takeover_from_a_leader_that_died(server: Watched) -> None:
    server.at(100.0, m.Looked(100.0, OTHERS))
    server.at(104.0, m.Looked(104.0, OTHERS))
    assert server.told(104.5) == {"leads": 0, "term": 4, "lease_age_seconds": 4.5, "lease_away": 0, "members": 2, "takeovers": 0}
    server.at(106.5, m.Held(106.25, m.Lease(5, "me", 1, TTL)))
    server.at(108.0, m.TookOver())
    server.at(108.5, m.Held(108.5, m.Lease(5, "me", 2, TTL)))
    told = server.told(109.0)
    assert told == {
        "leads": 1,
        "term": 5,
        "lease_age_seconds": 0.5,
        "lease_away": 0,
        "members": 2,
        "takeovers": 1,
        "takeover_seconds_unheard": 6.5,
        "takeover_seconds_begin": 1.5,
    }
    assert server.told(108.5 + TTL)["leads"] == 0, "it could not renew"


def test_a_lease_that_was_given_up_was_not_waited_for(server: Watched) -> None:
    server.at(100.0, m.Looked(100.0, replace(OTHERS, free=True)))
    server.at(101.0, m.Held(101.0, m.Lease(5, "me", 1, TTL)))
    server.at(103.0, m.TookOver())
    told = server.told(103.0)
    assert (told["takeover_seconds_unheard"], told["takeover_seconds_begin"]) == (0.0, 2.0)


def test_a_takeover_that_failed_is_none(server: Watched) -> None:
    server.at(100.0, m.Looked(100.0, OTHERS))
    server.at(107.0, m.Held(107.0, m.Lease(5, "me", 1, TTL)))
    server.at(108.0, m.Failed())
    told = server.told(108.0)
    assert told["takeovers"] == 0
    assert "takeover_seconds_begin" not in told
