"""What the state machines know of a TiKV cluster: regions, peers, and the errors that end a subscription. Plain data, without gRPC."""

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
    """A region as PD (or TiKV in an error) tells it; keys are encoded, an empty end is open."""

    id: int
    start: bytes
    end: bytes
    conf_ver: int
    version: int
    leader: Peer | None
    peers: tuple[Peer, ...] = ()


class End(enum.Enum):
    """How a subscription ended. The first eight are errors of TiKV (`cdcpb.Error`, by its field names), the others are found here."""

    NOT_LEADER = "not_leader"
    EPOCH_NOT_MATCH = "epoch_not_match"
    REGION_NOT_FOUND = "region_not_found"
    SERVER_IS_BUSY = "server_is_busy"
    CONGESTED = "congested"
    DUPLICATE_REQUEST = "duplicate_request"
    COMPATIBILITY = "compatibility"
    CLUSTER_ID_MISMATCH = "cluster_id_mismatch"
    UNKNOWN = "unknown"
    """An error that a newer TiKV knows."""
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
    """The error with which a store ended a subscription, and what it tells beside its kind.

    `leader`: who leads the region now (NOT_LEADER). `wait_s`: seconds for which the store wants to be left alone (SERVER_IS_BUSY).
    `split`: the regions after a split are there already (EPOCH_NOT_MATCH). `told`: for errors that end the capture, what the store says,
    as a sentence.
    """

    end: End
    leader: Peer | None = None
    wait_s: float = 0.0
    split: bool = False
    told: str = ""
