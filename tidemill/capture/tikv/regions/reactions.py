"""What the region state machine does when a subscription ends, by the way it ended. This table is complete: there are no other cases.

    end                     what follows                                  where it comes from
    not_leader              the leader that is named; else ask PD         the region's leader moved
    epoch_not_match         ask PD for the sub-range                      split (the new regions are named: at once) or merge
    region_not_found        ask PD for the sub-range                      the peer is gone, or was moved
    server_is_busy          the same region, after the time it names      too many scans wait; the store's window halves
    congested               the same region, later                        the store's memory is full; the store's window halves
    duplicate_request       open a new stream; the second time fatal      a deregister came late, or we count wrongly
    compatibility           fatal                                         the store wants a newer client
    cluster_id_mismatch     fatal                                         another cluster
    protocol (ours)         deregister, the same region from below the    a COMMIT without its PREWRITE, a row at or below the resolved ts
                            row; fatal if the log is complete beyond it   and the like
    frozen (ours)           deregister, ask PD                            the watchdog saw no progress (watchdog/)
    stream (ours)           ask PD                                        the stream to the store broke
    store (ours)            ask PD                                        the store cannot be reached, or is gone
    anything else           the same region; from the third time ask PD   an error that a newer TiKV knows

Every retry first waits for the sub-range's back-off: 50 ms, doubling up to 2 s. Each wait is shortened by up to a half at random. Five
minutes without an error reset it. Only the first retry after a split does not wait. A new subscription is a new scan: where it would help
as little as the one before, the wait goes on doubling while the reason stays the same (`cap`): the region waits, and the store and the
other regions have peace. Three ends in a row for one reason, splits excepted, are a warning, and in the status.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tidemill.capture.tikv.model import End, StoreError
from tidemill.capture.tikv.regions.actions import RowSeen
from tidemill.capture.tikv.regions.state import BACKOFF_CAP
from tidemill.errors import ClusterMismatch, ResolvedTsBroken, TidemillError, UpstreamError, VersionTooOld
from tidemill.tso import describe

BUSY_CAP = 600.0  # seconds that a store may ask to wait
AGAIN_CAP, REFUSED_CAP = 60.0, 8.0
"""Seconds to wait at most after ends for one reason in a row: of a subscription that breaks the protocol, so that it would be scanned to
the same end; of one that a store refuses, which may recover at any time."""
RETRIES_OF_UNKNOWN = 2  # retries after an unknown error before PD is asked


class Then(enum.Enum):
    """What to do when a subscription has ended."""

    RETRY = "the same region at the same store"
    MOVE = "the same region at the leader that was named, else as RELOAD"
    RELOAD = "ask PD who has the sub-range now"
    REOPEN = "open a new stream, then the same region; the second time FATAL"
    FATAL = "end the capture"


@dataclass(frozen=True, slots=True)
class Reaction:
    """`window`: factor for the store's scan window. `tell`: send a deregister, because the store does not know that the subscription
    ended. `cap`: seconds to wait at most."""

    then: Then
    window: float = 1.0
    tell: bool = False
    cap: float = BACKOFF_CAP


REACTIONS: Mapping[End, Reaction] = MappingProxyType(
    {
        End.NOT_LEADER: Reaction(Then.MOVE),
        End.EPOCH_NOT_MATCH: Reaction(Then.RELOAD),
        End.REGION_NOT_FOUND: Reaction(Then.RELOAD),
        End.SERVER_IS_BUSY: Reaction(Then.RETRY, window=0.5),
        End.CONGESTED: Reaction(Then.RETRY, window=0.5, cap=REFUSED_CAP),
        End.DUPLICATE_REQUEST: Reaction(Then.REOPEN),
        End.COMPATIBILITY: Reaction(Then.FATAL),
        End.CLUSTER_ID_MISMATCH: Reaction(Then.FATAL),
        End.PROTOCOL: Reaction(Then.RETRY, tell=True, cap=AGAIN_CAP),
        End.FROZEN: Reaction(Then.RELOAD, tell=True),
        End.STREAM: Reaction(Then.RELOAD),
        End.STORE: Reaction(Then.RELOAD),
        End.UNKNOWN: Reaction(Then.RETRY, cap=REFUSED_CAP),
    }
)


_FATAL: Mapping[End, type[TidemillError]] = MappingProxyType({End.CLUSTER_ID_MISMATCH: ClusterMismatch, End.COMPATIBILITY: VersionTooOld})


def wait_of(error: StoreError) -> float:
    """Return for how many seconds the store asks to be left alone."""
    return min(error.wait_s, BUSY_CAP)


def fatal_error(error: StoreError) -> TidemillError:
    """Return the error that ends the capture."""
    return _FATAL.get(error.end, UpstreamError)(error.told)


def row_lost(where: str, cause: str, row: RowSeen, head: int) -> TidemillError:
    """Return the error that ends the capture when a row comes at or below the log's resolved ts."""
    return ResolvedTsBroken(
        f"{where}: {cause}: key {row.key.hex()}, start_ts {row.start_ts}, commit_ts {describe(row.commit_ts)}, "
        f"but the log is complete up to {describe(head)}",
        hint="TiKV had promised that no such row would come. The log does not have this row and will not get it. Start the capture again, "
        "read the table again with `tidemill resync`, and report this with TiKV's version.",
    )
