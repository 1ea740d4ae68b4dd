"""The connections between a simulated cluster and a simulated capture: streams, and how often faults happen."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field

from tidemill.playground.store.feed import FeedStream, Scan
from tidemill.wire import cdcpb_pb2 as cdcpb


@dataclass(eq=False)
class Connection:
    """A stream with both ends, and the messages between them."""

    slot: int
    server: FeedStream
    requests: deque[cdcpb.ChangeDataRequest] = field(default_factory=deque)
    scans: list[tuple[Scan, Generator[list[bytes], None, None]]] = field(default_factory=list)
    garbled: bool = False


@dataclass
class Faults:
    """The rate of each fault, 0 to 1."""

    stale_pd: float = 0.0
    hole: float = 0.0
    no_leader: float = 0.0
    pd_down: float = 0.0
    no_stream: float = 0.0
    cut: float = 0.0
    lag: float = 0.0  # the thread that takes messages is behind
    gc: bool = False
    old_server: bool = False
    down: set[int] = field(default_factory=set)  # stores
