"""What the region state machine is told to capture, and what it asks its driver to do."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.capture.tikv.model import Region
from tidemill.errors import TidemillError


@dataclass(frozen=True, slots=True)
class Span:
    """A key range (encoded) to capture into a partition, all commits above `checkpoint`."""

    id: int
    start: bytes
    end: bytes
    partition: int
    checkpoint: int
    label: str = ""
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class RowSeen:
    """A row that a store sent, as far as it tells who it is."""

    commit_ts: int
    start_ts: int
    key: bytes


@dataclass(frozen=True, slots=True)
class HoldFrontier:
    """Hold the partition's frontier at `checkpoint` for this sub-range."""

    sub_range: int
    checkpoint: int
    partition: int


@dataclass(frozen=True, slots=True)
class ReleaseFrontier:
    """These sub-ranges are over."""

    sub_ranges: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LoadRegions:
    """Ask PD for the regions of the ranges (in key order, without overlap); then call `loaded` or `load_failed`."""

    load: int
    ranges: tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Open a stream; then call `stream_opened`, or `stream_ended` with its end."""

    slot: int
    store_id: int
    multiplexed: bool


@dataclass(frozen=True, slots=True)
class CloseStream:
    """Nothing is subscribed on it any more."""

    slot: int


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Tell the receiver of the subscription, then send its register."""

    sub_range: int
    slot: int
    region: Region
    request_id: int
    checkpoint: int
    start: bytes
    end: bytes
    partition: int
    since: int
    """The span's checkpoint: rows at or below it are not wanted. Those up to `checkpoint` have been promised not to come any more."""


@dataclass(frozen=True, slots=True)
class Deregister:
    """Send a deregister."""

    slot: int
    region_id: int
    request_id: int


@dataclass(frozen=True, slots=True)
class Fail:
    """Capture cannot go on."""

    error: TidemillError


Action = HoldFrontier | ReleaseFrontier | LoadRegions | OpenStream | CloseStream | Subscribe | Deregister | Fail
