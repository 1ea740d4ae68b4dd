"""What the region state machine is told to capture, and what it asks its driver to do."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.capture.tikv.model import Region
from tidemill.errors import TidemillError


@dataclass(frozen=True, slots=True)
class Span:
    """A key range (encoded) to capture into a partition: all commits above `checkpoint`."""

    id: int
    start: bytes
    end: bytes
    partition: int
    checkpoint: int
    label: str = ""
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class RowSeen:
    """The parts of a received row that identify it."""

    commit_ts: int
    start_ts: int
    key: bytes


@dataclass(frozen=True, slots=True)
class HoldFrontier:
    """Hold the partition's frontier at `resolved_ts` for this sub-range."""

    sub_range: int
    resolved_ts: int
    partition: int


@dataclass(frozen=True, slots=True)
class ReleaseFrontier:
    """These sub-ranges no longer exist: they hold the frontier no more."""

    sub_ranges: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LoadRegions:
    """Ask PD for the regions of these ranges, then call `loaded` or `load_failed`. The ranges are in key order and do not overlap."""

    load: int
    ranges: tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Open a stream. Call `stream_opened` when it is open, and `stream_ended` when it ends or cannot be opened."""

    slot: int
    store_id: int
    multiplexed: bool


@dataclass(frozen=True, slots=True)
class CloseStream:
    """Close a stream. It carries no subscription any more."""

    slot: int


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Announce the subscription to the receiver, then send the register request to the store."""

    sub_range: int
    slot: int
    region: Region
    request_id: int
    checkpoint: int
    start: bytes
    end: bytes
    partition: int
    since: int
    """The span's checkpoint. Rows at or below it are not wanted. Rows above it, up to `checkpoint`, must not come: they were resolved."""


@dataclass(frozen=True, slots=True)
class Deregister:
    """Send a deregister request."""

    slot: int
    region_id: int
    request_id: int


@dataclass(frozen=True, slots=True)
class Fail:
    """End the capture with this error."""

    error: TidemillError


Action = HoldFrontier | ReleaseFrontier | LoadRegions | OpenStream | CloseStream | Subscribe | Deregister | Fail
