"""What the catalog's Java class asks, as options: names, moments, the bounds of a CHANGES clause."""

from __future__ import annotations

import pytest

from tidemill.errors import ConfigError
from tidemill.spark.catalog.questions import Question, as_of, interval, parse_question
from tidemill.tso import compose

TS = compose(1_700_000_000_000, 7)
LAST = (1 << 18) - 1


def version(start: int, end: int | None = None, **more: str) -> dict[str, str]:
    ends = {} if end is None else {"to": str(end)}
    return {"bounds": "version", "from": str(start), "fromIncluded": "true", "toIncluded": "true", **ends, **more}


def moments(start: int, end: int, **more: str) -> dict[str, str]:
    return {"bounds": "timestamp", "from": str(start), "to": str(end), "fromIncluded": "true", "toIncluded": "true", **more}


def test_settings_and_what_is_asked_about() -> None:
    asked = parse_question({"question": "table", "database": "shop", "name": "orders", "PD": "pd:2379", "time_as": "interval"})
    assert (asked.question, asked.database, asked.table) == (Question.TABLE, "shop", "orders")
    assert asked.settings == {"pd": "pd:2379", "timeAs": "interval"}


def test_a_setting_that_no_format_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no option 'pdd'"):
        parse_question({"question": "databases", "pdd": "pd:2379"})


def test_neither_a_cluster_nor_a_log() -> None:
    with pytest.raises(ConfigError, match="neither a cluster nor a log") as raised:
        parse_question({"question": "databases", "strict": "true"})
    assert "spark.sql.catalog.NAME.pd" in raised.value.hint


@pytest.mark.parametrize(
    ("about", "settings", "expected"),
    [
        ({}, {}, {}),
        ({}, {"asOfTimestamp": "2026-01-01T00:00:00Z"}, {"asOfTimestamp": "2026-01-01T00:00:00Z"}),
        ({"version": "12"}, {"asOfTs": "11"}, {"asOfTs": "12"}),
        ({"asOfMicros": "1700000000000999"}, {"asOfTs": "11"}, {"asOfTs": str(compose(1_700_000_000_000))}),
    ],
)
def test_the_query_says_the_moment_before_the_catalog(about: dict[str, str], settings: dict[str, str], expected: dict[str, str]) -> None:
    assert as_of(about, settings) == expected


@pytest.mark.parametrize(
    ("about", "starting", "ending"),
    [
        (version(TS, TS + 9), TS - 1, TS + 9),
        (version(TS, TS + 9, fromIncluded="false"), TS, TS + 9),
        (version(TS, TS + 9, toIncluded="false"), TS - 1, TS + 8),
        (version(TS), TS - 1, None),
        (moments(5_000, 9_000), compose(5) - 1, compose(9) | LAST),
        (moments(5_000, 9_000, fromIncluded="false", toIncluded="false"), compose(6) - 1, compose(9) - 1),
        (moments(5_001, 9_001), compose(6) - 1, compose(9) | LAST),
        (moments(5_001, 9_001, fromIncluded="false", toIncluded="false"), compose(6) - 1, compose(9) | LAST),
        ({}, None, None),
    ],
)
def test_bounds_are_a_start_that_is_exclusive_and_an_end_that_is_not(
    about: dict[str, str], starting: int | None, ending: int | None
) -> None:
    found = interval(about)
    assert (found.get("startingTs"), found.get("endingTs")) == tuple(None if ts is None else str(ts) for ts in (starting, ending))


def test_a_version_that_is_no_tso() -> None:
    with pytest.raises(ConfigError, match="not a TSO"):
        interval(version(1_700_000_000))
