"""Time zones as people name them."""

from __future__ import annotations

import os
import re
from datetime import UTC, timedelta, timezone, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidemill.errors import ConfigError

_OFFSET = re.compile(r"([+-])(\d\d?):([0-5]\d)")


def parse_zone(text: str | None) -> tzinfo:
    """An IANA name, `±HH:MM` or `UTC`; None: the system's zone. Raises ConfigError."""
    name = system_zone() if text is None else text.strip()
    offset = _OFFSET.fullmatch(name)
    if offset:
        distance = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        if distance > timedelta(hours=14):
            raise ConfigError(f"time zone {name} lies more than 14 hours from UTC")
        return timezone(-distance if offset[1] == "-" else distance)
    if name in ("UTC", "utc", "Z"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            f"time zone {name!r} is not known", hint="Give an IANA name such as Asia/Shanghai, or an offset such as +08:00."
        ) from None


def system_zone() -> str:
    """The name of the system's zone: what TZ says, else what /etc/localtime points to, else UTC."""
    named = os.environ.get("TZ", "").lstrip(":")
    if named:
        return named
    link = Path("/etc/localtime")
    if link.is_symlink():
        _, found, name = str(link.resolve()).partition("/zoneinfo/")
        if found:
            return name.removeprefix("posix/")
    return "UTC"


def zone_name(zone: tzinfo) -> str:
    """What `parse_zone` takes."""
    return str(zone).removeprefix("UTC") if isinstance(zone, timezone) and zone is not UTC else str(zone)
