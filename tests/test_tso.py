from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import tso
from tidemill.errors import ConfigError

NOW = tso.compose(1_795_255_301_108, 7)


@given(st.integers(0, (1 << 45) - 1), st.integers(0, (1 << 18) - 1))
def test_parts_come_back(ms: int, counter: int) -> None:
    ts = tso.compose(ms, counter)
    assert (tso.physical_ms(ts), tso.logical(ts)) == (ms, counter)


@pytest.mark.parametrize(
    ("text", "ts"),
    [
        ("470615405653655552", 470615405653655552),
        ("2026-11-21T10:01:41.108Z", 470615405653655552),
        ("2026-11-21T18:01:41.108+08:00", 470615405653655552),
        ("now", NOW),
        ("-2h", NOW - (7_200_000 << 18)),
        ("-1.5s", NOW - (1500 << 18)),
        ("0", 0),
    ],
)
def test_what_people_write(text: str, ts: int) -> None:
    assert tso.parse(text, NOW) == ts


@pytest.mark.parametrize(
    "text", ["", "tomorrow", "-2 hours", "2026-11-21T10:00:00", "1795255301", "99999999999999999999", "1950-01-01T00:00:00Z"]
)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        tso.parse(text, NOW)


def test_now_needs_a_cluster() -> None:
    with pytest.raises(ConfigError, match="needs a running cluster"):
        tso.parse("now")


def test_described_for_people() -> None:
    assert tso.describe(470615405653655552) == "470615405653655552 (2026-11-21 10:01:41.108 UTC)"
    assert tso.describe((1 << 64) - 1).startswith(str((1 << 64) - 1))
