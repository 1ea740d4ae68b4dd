"""What follows from each way in which a subscription can end: a table, without exceptions to it elsewhere.

    end                     what follows                                  where it comes from
    not_leader              the leader that is named; else ask PD         the region's leader moved
    epoch_not_match         ask PD for the sub-range                      split (pieces are named: at once) or merge (none are)
    region_not_found        ask PD for the sub-range                      the peer is gone, or was moved
    server_is_busy          the same region, after the time it names      too many scans wait; the store's window halves
    congested               the same region, later                        the store's memory is full; the store's window halves
    duplicate_request       open the stream anew; the second time fatal   a deregister came late, or we count wrongly
    compatibility           fatal                                         the store wants a newer client
    cluster_id_mismatch     fatal                                         another cluster
    protocol (ours)         deregister, the same region from below the    a COMMIT without its PREWRITE, a row at or below the resolved ts
                            row; fatal if the log is complete beyond it   and the like
    frozen (ours)           deregister, ask PD                            the watchdog saw no progress (watch.py)
    stream (ours)           ask PD                                        the stream to the store broke
    store (ours)            ask PD                                        the store cannot be reached, or is gone
    anything else           the same region; from the third time ask PD   an error that a newer TiKV knows

Every way waits for the piece's back-off first: 50 ms, doubling to 2 s, each shortened by up to a half at random, forgotten after
five minutes without an error. Only a split skips it the first time.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tidemill.capture.tikv.regions.actions import RowSeen
from tidemill.errors import ClusterMismatch, ResolvedTsBroken, TidemillError, UpstreamError, VersionTooOld
from tidemill.tso import describe
from tidemill.wire import cdcpb_pb2

BUSY_CAP = 600.0  # seconds that a store may ask to wait
RETRIES_OF_UNKNOWN = 2  # of an error without a name, before PD is asked


class Then(enum.Enum):
    """What follows the end of a subscription."""

    RETRY = "the same region at the same store"
    MOVE = "the same region at the leader that was named, else as RELOAD"
    RELOAD = "ask PD who has the sub-range now"
    REOPEN = "open the stream anew, then the same region; the second time FATAL"
    FATAL = "end the capture"


@dataclass(frozen=True, slots=True)
class Reaction:
    """`window`: what becomes of the number of scans that the store is given at the same time; `tell`: the store does not know yet
    that the subscription is over."""

    then: Then
    window: float = 1.0
    tell: bool = False


REACTIONS: Mapping[str, Reaction] = MappingProxyType(
    {
        "not_leader": Reaction(Then.MOVE),
        "epoch_not_match": Reaction(Then.RELOAD),
        "region_not_found": Reaction(Then.RELOAD),
        "server_is_busy": Reaction(Then.RETRY, window=0.5),
        "congested": Reaction(Then.RETRY, window=0.5),
        "duplicate_request": Reaction(Then.REOPEN),
        "compatibility": Reaction(Then.FATAL),
        "cluster_id_mismatch": Reaction(Then.FATAL),
        "protocol": Reaction(Then.RETRY, tell=True),
        "frozen": Reaction(Then.RELOAD, tell=True),
        "stream": Reaction(Then.RELOAD),
        "store": Reaction(Then.RELOAD),
        "unknown": Reaction(Then.RETRY),
    }
)


def kind_of(error: cdcpb_pb2.Error) -> str:
    """The row of the table that an error belongs to."""
    return next((f.name for f, _ in error.ListFields() if f.name in REACTIONS), "unknown")


def asked_to_wait(error: cdcpb_pb2.Error) -> float:
    """Seconds that the store wants to be left alone."""
    return float(min(error.server_is_busy.backoff_ms / 1000, BUSY_CAP))


def splits(error: cdcpb_pb2.Error) -> bool:
    """Whether the error tells of a split: the pieces exist already, so there is nothing to wait for."""
    return bool(error.epoch_not_match.current_regions)


def fatal_error(error: cdcpb_pb2.Error) -> TidemillError:
    """What ends the capture."""
    kind = kind_of(error)
    if kind == "cluster_id_mismatch":
        told = error.cluster_id_mismatch
        return ClusterMismatch(f"TiKV belongs to cluster {told.current}, not to cluster {told.request}")
    if kind == "compatibility":
        return VersionTooOld(f"TiKV asks for a client of version {error.compatibility.required_version} or newer")
    return UpstreamError(f"TiKV keeps saying that region {error.duplicate_request.region_id} is subscribed twice")


def row_lost(where: str, cause: str, row: RowSeen, head: int) -> TidemillError:
    """What ends the capture when a row comes that the log is complete beyond."""
    return ResolvedTsBroken(
        f"{where}: {cause}: key {row.key.hex()}, start_ts {row.start_ts}, commit_ts {describe(row.commit_ts)}, "
        f"but the log is complete up to {describe(head)}",
        hint="TiKV had promised that no such row would come. The log does not have it, and goes on without it when the capture is started "
        "again: then read the table again with `tidemill resync`, and report this with TiKV's version.",
    )
