"""The regions, peers and subscription errors of a TiKV cluster, as the state machines see them. Plain data, without gRPC."""

from __future__ import annotations

import enum
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    """A replica of a region."""

    id: int
    store_id: int


@dataclass(frozen=True, slots=True)
class Region:
    """A region as PD reports it, or TiKV in an error. Keys are encoded; an empty end is open."""

    id: int
    start: bytes
    end: bytes
    conf_ver: int
    version: int
    leader: Peer | None
    peers: tuple[Peer, ...] = ()


class End(enum.Enum):
    """How a subscription ended. The first eight are TiKV's errors (field names of `cdcpb.Error`); the others are detected by the
    capture."""

    NOT_LEADER = "not_leader"
    EPOCH_NOT_MATCH = "epoch_not_match"
    REGION_NOT_FOUND = "region_not_found"
    SERVER_IS_BUSY = "server_is_busy"
    CONGESTED = "congested"
    DUPLICATE_REQUEST = "duplicate_request"
    COMPATIBILITY = "compatibility"
    CLUSTER_ID_MISMATCH = "cluster_id_mismatch"
    UNKNOWN = "unknown"
    """An error of a newer TiKV, not known here."""
    PROTOCOL = "protocol"
    """The store broke the protocol."""
    FROZEN = "frozen"
    """The watchdog saw no progress."""
    STREAM = "stream"
    """The stream to the store broke."""
    STORE = "store"
    """The store cannot be reached, or is gone."""


@dataclass(frozen=True, slots=True)
class StoreError:
    """The error with which a store ended a subscription, and its details.

    `leader`: the region's leader now (NOT_LEADER). `wait_s`: seconds for which the store asks to be left alone (SERVER_IS_BUSY). `split`:
    PD knows the regions after the split already (EPOCH_NOT_MATCH). `told`: a sentence with the store's message, for errors that end the
    capture.
    """

    end: End
    leader: Peer | None = None
    wait_s: float = 0.0
    split: bool = False
    told: str = ""
