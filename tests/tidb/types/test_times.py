"""Dates, times and durations, against TiDB's packed numbers."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.errors import MalformedBytes
from tidemill.tidb.types import times
from tidemill.tidb.types.times import Moment

GOLDEN = Path(__file__).parents[2] / "golden" / "tidb" / "codec.json"
VECTORS = json.loads(GOLDEN.read_text(encoding="utf-8"))
TIMES = [v for v in VECTORS if v["group"] == "time"]
DURATIONS = [v for v in VECTORS if v["group"] == "duration"]

MOMENTS = st.builds(
    Moment,
    st.integers(0, 9999),
    st.integers(0, 12),
    st.integers(0, 31),
    st.integers(0, 23),
    st.integers(0, 59),
    st.integers(0, 59),
    st.integers(0, 999_999),
)


@pytest.mark.parametrize("vector", TIMES, ids=[v["name"] for v in TIMES])
def test_packed_times(vector: dict[str, Any]) -> None:
    packed = int(vector["name"].rpartition("=")[2])
    assert packed == int(vector["hex"], 16)
    moment = times.unpack_time(packed)
    fsp = len(vector["input"].partition(".")[2])
    text = times.format_date(moment) if "(date)" in vector["name"] else times.format_datetime(moment, fsp)
    assert text == vector["input"]
    assert times.parse_datetime(text) == moment
    assert times.pack_time(moment) == packed


@pytest.mark.parametrize("vector", DURATIONS, ids=[v["input"] for v in DURATIONS])
def test_durations(vector: dict[str, Any]) -> None:
    (nanoseconds,) = re.findall(r"nanoseconds=(-?\d+)", vector["name"])
    fsp = len(vector["input"].partition(".")[2])
    assert times.format_duration(int(nanoseconds), fsp) == vector["input"]
    assert times.parse_duration(vector["input"]) == int(nanoseconds)


@given(MOMENTS)
def test_times_round_trip(moment: Moment) -> None:
    assert times.unpack_time(times.pack_time(moment)) == moment
    assert times.from_core(times.to_core(moment)) == moment
    assert times.parse_datetime(times.format_datetime(moment, 6)) == moment


@given(MOMENTS, MOMENTS)
def test_packed_times_sort_as_times(one: Moment, two: Moment) -> None:
    assert (times.pack_time(one) < times.pack_time(two)) == (one < two)


@given(st.integers(-838 * 3600 * 10**6, 838 * 3600 * 10**6))
def test_durations_round_trip(microseconds: int) -> None:
    assert times.parse_duration(times.format_duration(microseconds * 1000, 6)) == microseconds * 1000


@given(st.integers(0, (1 << 64) - 1))
def test_any_number_is_a_time_or_malformed(packed: int) -> None:
    for read in (times.unpack_time, times.from_core):
        try:
            moment = read(packed)
        except MalformedBytes:
            continue
        assert len(times.format_datetime(moment, 6)) == 26


@given(st.datetimes(datetime(1970, 1, 1), datetime(2038, 1, 19)), st.sampled_from(["Asia/Shanghai", "America/New_York", "Europe/Berlin"]))
def test_zones(stored: datetime, zone: str) -> None:
    shown = times.in_zone(Moment(*stored.timetuple()[:6], stored.microsecond), ZoneInfo(zone))
    local = stored.replace(tzinfo=UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    assert datetime(*shown) == local
    assert abs(local - stored) < timedelta(hours=15)


def test_the_zero_time_has_no_zone() -> None:
    assert times.in_zone(times.ZERO, ZoneInfo("Asia/Tokyo")) == times.ZERO


@pytest.mark.parametrize("moment", [Moment(2021, 2, 31), Moment(2021, 0, 1), Moment(9999, 12, 31, 23)])
def test_a_timestamp_outside_of_the_calendar(moment: Moment) -> None:
    with pytest.raises(MalformedBytes, match="is not in the calendar"):
        times.in_zone(moment, ZoneInfo("Asia/Tokyo"))


@pytest.mark.parametrize(
    ("fsp", "expected"),
    [(-1, "2021-02-03 04:05:06"), (0, "2021-02-03 04:05:06"), (2, "2021-02-03 04:05:06.12"), (6, "2021-02-03 04:05:06.120000")],
)
def test_fractions(fsp: int, expected: str) -> None:
    assert times.format_datetime(Moment(2021, 2, 3, 4, 5, 6, 120_000), fsp) == expected


def test_the_fraction_of_a_duration_is_cut() -> None:
    assert times.format_duration(-1_999_999_999, 3) == "-00:00:01.999"
    assert times.format_duration(999, 6) == "00:00:00.000000"
    assert times.format_duration(-1, 0) == "-00:00:00"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2021-2-3", Moment(2021, 2, 3)),
        ("2021-02-03 04:05", Moment(2021, 2, 3, 4, 5)),
        ("2021-02-03T04:05:06.5", Moment(2021, 2, 3, 4, 5, 6, 500_000)),
        ("0000-00-00 00:00:00", times.ZERO),
    ],
)
def test_texts(text: str, expected: Moment) -> None:
    assert times.parse_datetime(text) == expected


def test_digits_beyond_the_column_are_cut() -> None:
    assert times.parse_datetime("2021-02-03 04:05:06.987654", 2).microsecond == 980_000


@pytest.mark.parametrize("text", ["", "now", "2021-13-01", "2021-01-01 25:00:00", "20210101"])
def test_texts_that_are_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="not a date or time"):
        times.parse_datetime(text)


@pytest.mark.parametrize("text", ["", "12", "1:2:3:4", "x:y"])
def test_texts_that_are_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        times.parse_duration(text)


def test_days_in_a_duration() -> None:
    assert times.parse_duration("-34 22:59:59") == -(838 * 3600 + 59 * 60 + 59) * times.SECOND
