"""One EventFeed stream to one store: requests out, raw messages into the inbox. It does not decode rows.

There are two transports: `h2` (http2.py: Tidemill's own HTTP/2 client, fast with many small messages) and `grpc` (grpc.py: grpc.aio).
`connect.py` opens either.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

MULTIPLEXED = ("features", "stream-multiplexing")
UNIMPLEMENTED = 12
UNKNOWN = 2
UNAVAILABLE = 14
REFUSED = frozenset({7, 16})
"""PERMISSION_DENIED and UNAUTHENTICATED: TiKV's answer to a client certificate whose name it does not allow (cert-allowed-cn)."""
CANCELLED = 1


class Call(Protocol):
    """A gRPC call that streams its answers; as a string, its path."""

    @property
    def metadata(self) -> Sequence[tuple[str, str]]:
        """The HTTP/2 headers that the call needs."""


class Method(enum.StrEnum):
    """The two calls of cdcpb.ChangeData. V1: one subscription of a region per stream, no request ids in resolved ts."""

    V2 = "/cdcpb.ChangeData/EventFeedV2"
    V1 = "/cdcpb.ChangeData/EventFeed"

    @property
    def multiplexed(self) -> bool:
        return self is Method.V2

    @property
    def metadata(self) -> Sequence[tuple[str, str]]:
        """The HTTP/2 headers that the call needs."""
        return (MULTIPLEXED,) if self is Method.V2 else ()


class Transport(enum.StrEnum):
    """The transport of EventFeed streams."""

    H2 = "h2"
    GRPC = "grpc"


@dataclass(frozen=True, slots=True)
class FeedEnd:
    """How a stream ended: a gRPC status and its text."""

    status: int
    text: str

    def __str__(self) -> str:
        return f"status {self.status}: {self.text}"


class Feed(Protocol):
    """An open stream. Belongs to the event loop."""

    slot: int
    ended: asyncio.Future[FeedEnd]

    def send(self, request: bytes) -> None:
        """Queue a serialised ChangeDataRequest."""

    def cancel(self) -> None:
        """End the stream."""


LEAST_WINDOW, LARGEST_WINDOW = 1 << 20, 16 << 20


def window_of(memory: int, streams: int) -> int:
    """Return a stream's flow-control window in bytes: all windows together are a quarter of the memory quota, within bounds."""
    return max(LEAST_WINDOW, min(LARGEST_WINDOW, memory // 4 // max(streams, 1)))
