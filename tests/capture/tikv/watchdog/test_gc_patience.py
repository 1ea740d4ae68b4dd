"""How long a stuck capture may hold back garbage collection."""

from __future__ import annotations

from tidemill.capture.tikv.watchdog.gc_patience import GcPatience

TTL = 86400.0
MINUTE = 60.0


def shares(patience: GcPatience, begin: float, minutes: int, needed: list[float]) -> list[float]:
    """Looks once a minute; `needed` holds from when on history is needed, the last one from then on."""
    return [patience.look(begin + m * MINUTE, needed[min(m, len(needed) - 1)]) for m in range(minutes)]


def test_a_log_that_follows_uses_nothing_up() -> None:
    patience = GcPatience(TTL)
    for m in range(3 * 1440):
        share = patience.look(m * MINUTE, m * MINUTE - 1 - m % 7)
        assert share < 0.001
        assert not patience.new_mark(share)


def test_a_log_that_stands_still_is_told_twice_and_over_after_the_ttl() -> None:
    patience = GcPatience(TTL)
    patience.look(0, -1)
    told = []
    for m in range(1, 1500):
        share = patience.look(m * MINUTE, 0)
        if patience.new_mark(share):
            told.append(m)
        if share >= 1:
            break
    assert told == [720, 1152]
    assert m == 1440


def test_marks_are_told_again_after_it_has_caught_up() -> None:
    patience = GcPatience(TTL)
    shares(patience, 0, 800, [0])
    assert patience.new_mark(patience.look(800 * MINUTE, 0))
    assert not patience.new_mark(patience.look(801 * MINUTE, 801 * MINUTE))
    shares(patience, 802 * MINUTE, 700, [802 * MINUTE])
    assert patience.new_mark(patience.look(802 * MINUTE + 0.6 * TTL, 802 * MINUTE))


def test_a_log_that_was_away_for_longer_has_time_to_catch_up() -> None:
    """It begins three days behind, needs an hour for the scans, then catches up at twice the speed of the clock: six days in all."""
    patience = GcPatience(TTL)
    shares(patience, 0, 60, [-3 * TTL])
    for m in range(60, 3 * 1440):
        assert patience.look(m * MINUTE, -3 * TTL + 2 * (m - 60) * MINUTE) < 0.1


def test_a_log_that_falls_ever_further_behind_is_over_too() -> None:
    patience = GcPatience(TTL)
    worst = [patience.look(m * MINUTE, 0.1 * m * MINUTE) for m in range(1700)]
    assert next(m for m, share in enumerate(worst) if share >= 1) == 1600  # 0.9 of them behind


def test_tables_that_are_read_are_progress() -> None:
    patience = GcPatience(TTL)
    for m in range(3 * 1440):
        assert patience.look(m * MINUTE, 0, 10_000 - m) < 0.05
    last = [patience.look((3 * 1440 + m) * MINUTE, 0, 5000) for m in range(1500)]
    assert last[-1] >= 1


def test_a_machine_that_slept_was_not_stuck() -> None:
    patience = GcPatience(TTL)
    shares(patience, 0, 10, [0])
    assert patience.look(2 * TTL, 0) == 0
    assert shares(patience, 2 * TTL, 1500, [0])[-1] >= 1
