"""Times as TiCDC's API writes them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo


def shown(moment: datetime, zone: tzinfo | None = UTC) -> str:
    """Return `2006-01-02 15:04:05.000` in the server's zone; None: the machine's. TiCDC writes no zone."""
    local = moment.astimezone(zone)
    return f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03d}"


def rfc3339(moment: datetime, zone: tzinfo | None = UTC) -> str:
    """Return a time as Go writes it in JSON: `2006-01-02T15:04:05.123456Z`, without zeros at the end of the fraction."""
    local = moment.astimezone(zone)
    text = f"{local:%Y-%m-%dT%H:%M:%S}"
    if local.microsecond:
        text += f".{local.microsecond:06d}".rstrip("0")
    offset = f"{local:%z}"
    return text + ("Z" if offset in ("", "+0000") else f"{offset[:3]}:{offset[3:]}")
