"""Options of a log: how it is written and kept."""

from __future__ import annotations

from dataclasses import dataclass

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Options of a log: how it is written and kept."""

    compression: str = "none"  # of segments: none, lz4, zstd
    retention_ms: int = 24 * HOUR_MS  # segments younger than this stay even if no changefeed needs them
    low_water_bytes: int = 512 << 20  # free disk space below which nothing is published
    compact_rows: int = 65_536  # neighbours are joined until a file has this many rows
    grace_s: float = 600.0  # replaced files stay this long for readers that have listed them
    term: int = 0  # of the server that leads and lets this process write; 0: no server


DEFAULTS = LogOptions()
