"""The time zone of TIMESTAMP values."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from tidemill.delivery.zone import parse_zone, zone_name
from tidemill.errors import ConfigError


def test_zones() -> None:
    assert parse_zone("UTC") is UTC
    assert parse_zone("Asia/Shanghai") == ZoneInfo("Asia/Shanghai")
    assert parse_zone("+08:00") == timezone(timedelta(hours=8))
    assert parse_zone("-3:30") == timezone(-timedelta(hours=3, minutes=30))
    for text in ("UTC", "Asia/Shanghai", "+08:00", "-03:30"):
        assert zone_name(parse_zone(text)) == text


@pytest.mark.parametrize("text", ["Mars/Olympus", "+25:00", "", "../etc/passwd"])
def test_zones_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_zone(text)


def test_the_systems_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", ":Europe/Berlin")
    assert parse_zone(None) == ZoneInfo("Europe/Berlin")
    monkeypatch.delenv("TZ")
    parse_zone(None)
