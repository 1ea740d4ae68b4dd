"""Deadlines that outlive a clock which is set."""

from __future__ import annotations

from tidemill.changelog.storage.steady import SteadyClock

DAY = 86_400.0


def test_a_wall_clock_that_is_set() -> None:
    now = {"wall": 1000.0, "passed": 5.0}
    clock = SteadyClock(lambda: now["wall"], lambda: now["passed"])
    assert clock() == 1000
    now.update(wall=1010.0, passed=15.0)
    assert clock() == 1010
    now.update(wall=1020.0 + DAY, passed=25.0)
    assert clock() == 1020, "it is set a day ahead: ten seconds have passed"
    now.update(wall=1030.0, passed=35.0)
    assert clock() == 1030, "and back"
    now.update(wall=900.0, passed=45.0)
    assert clock() == 900, "a deadline is longer, never shorter"
