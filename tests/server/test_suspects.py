"""Which changefeed kills the host: found, without blaming one that only ran beside it."""

from __future__ import annotations

import pytest

from tidemill.server.suspects import SETTLE_S, Suspects


def round_of(suspects: Suspects, poison: str, feeds: str, now: float, proved: str) -> tuple[str, str | None]:
    """The host starts all that it may, those in `proved` advance, then it crashes if the poisonous one runs. Return what was started, and
    who is blamed."""
    started = ""
    for feed in sorted(feeds, key=suspects.suspects):
        if suspects.may_start(feed, now):
            suspects.started(feed, now)
            started += feed
    for feed in proved:
        suspects.advanced(feed)
    late = suspects.next_one(now)
    if late is not None and suspects.may_start(late, now):
        suspects.started(late, now)
        started += late
    return started, suspects.host_lost(True) if poison in started else None


@pytest.mark.parametrize("proved", ["ab", "a", ""])
def test_it_is_found_however_early_the_host_crashes(proved: str) -> None:
    """Once the others are left alone for a moment they advance; until then nobody innocent is blamed."""
    suspects, blamed = Suspects(), []
    for number in range(6):
        # for the first crashes the host dies before the others prove themselves; a host with suspects only starts one at a time
        shown = proved if number < 3 else "ab"
        blamed.append(round_of(suspects, "p", "abp", 100.0 * number, shown)[1])
    assert set(blamed) <= {None, "p"}
    assert "p" in blamed


def test_a_crash_that_comes_once_is_nobodys_fault() -> None:
    suspects = Suspects()
    assert round_of(suspects, "p", "abp", 0.0, "ab") == ("abp", None)
    suspects.started("p", 1.0)
    suspects.advanced("p")
    suspects.started("p", 2.0)
    assert suspects.host_lost(True) is None, "it is counted from its last progress on"


def test_a_suspect_waits_for_the_others_but_not_for_ever() -> None:
    suspects = Suspects()
    for now in (0.0, 1.0):
        suspects.started("p", now)
        suspects.started("slow", now)
        suspects.spoke("slow")
        suspects.host_lost(True)
    suspects.started("slow", 10.0)
    assert not suspects.may_start("p", 11.0)
    assert suspects.next_one(12.0) is None
    assert suspects.next_one(10.0 + SETTLE_S) == "p"
    suspects.advanced("slow")
    assert suspects.next_one(13.0) == "p"
    assert suspects.may_start("p", 13.0)
    assert suspects.next_one(14.0) is None


def test_two_suspects_never_run_unproven_together() -> None:
    suspects = Suspects()
    for now in (0.0, 1.0):
        for feed in "pq":
            suspects.started(feed, now)
        assert suspects.host_lost(True) is None
    assert suspects.may_start("p", 2.0)
    suspects.started("p", 2.0)
    assert not suspects.may_start("q", 2.0 + 10 * SETTLE_S)
    suspects.advanced("p")
    assert suspects.next_one(3.0) == "q"


def test_an_error_that_the_host_told_is_nobodys_fault() -> None:
    suspects = Suspects()
    for _ in range(5):
        suspects.started("p", 0.0)
        assert suspects.host_lost(False) is None
    assert suspects.may_start("p", 0.0)


def test_a_person_who_pauses_it_clears_it() -> None:
    suspects = Suspects()
    for _ in range(2):
        suspects.started("p", 0.0)
        suspects.host_lost(True)
    assert suspects.suspects("p")
    suspects.forget("p")
    assert not suspects.suspects("p")
