"""The state that the region state machine keeps: pieces of spans, streams, stores."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field

from tidemill.capture.tikv.actions import Span
from tidemill.capture.tikv.pd import Region


class Phase(enum.Enum):
    """Where a piece is."""

    GAP = "gap"
    LOADING = "loading"
    QUEUED = "queued"
    SCANNING = "scanning"
    LIVE = "live"


@dataclass(slots=True)
class Piece:
    """A part of a span that one subscription carries, or none yet."""

    id: int
    span: Span
    start: bytes
    end: bytes
    checkpoint: int
    phase: Phase = Phase.GAP
    region: Region | None = None
    slot: int = -1
    request_id: int = 0
    due: float = 0.0
    attempts: int = 0
    failed_at: float = -1e9
    duplicates: int = 0


@dataclass(slots=True)
class Stream:
    """An EventFeed stream to a store, from the moment it is asked for."""

    slot: int
    store_id: int
    multiplexed: bool
    up: bool = False
    ended: bool = False
    used: set[tuple[int, int]] = field(default_factory=set)  # (region, request) that the server knows, or may still know
    pieces: set[int] = field(default_factory=set)
    idle_since: float = 0.0


@dataclass(slots=True)
class Store:
    """A store, its streams and who waits for them."""

    id: int
    multiplexed: bool = True
    scanning: int = 0
    streams: list[Stream] = field(default_factory=list)
    queue: deque[int] = field(default_factory=deque)
