"""One EventFeed stream to one store: requests out, raw messages into the inbox. Knows nothing of rows.

Two transports do the same: `h2` (h2feed.py: our own HTTP/2 client, for many small messages) and `grpc` (grpc.aio).
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import grpc

from tidemill.capture.tikv.client.channels import Channels
from tidemill.capture.tikv.feed.inbox import Inbox

MULTIPLEXED = ("features", "stream-multiplexing")
UNIMPLEMENTED = 12
UNKNOWN = 2
UNAVAILABLE = 14
REFUSED = frozenset({7, 16})
"""PERMISSION_DENIED and UNAUTHENTICATED: how TiKV answers a client certificate whose name it does not want (cert-allowed-cn)."""
CANCELLED = 1


class Method(enum.StrEnum):
    """The two calls of cdcpb.ChangeData. V1: one subscription of a region per stream, no request ids in resolved ts."""

    V2 = "/cdcpb.ChangeData/EventFeedV2"
    V1 = "/cdcpb.ChangeData/EventFeed"

    @property
    def multiplexed(self) -> bool:
        return self is Method.V2

    @property
    def metadata(self) -> Sequence[tuple[str, str]]:
        """HTTP/2 headers that the call needs."""
        return (MULTIPLEXED,) if self is Method.V2 else ()


class Transport(enum.StrEnum):
    """What carries EventFeed streams."""

    H2 = "h2"
    GRPC = "grpc"


@dataclass(frozen=True, slots=True)
class FeedEnd:
    """How a stream ended: a gRPC status and what was said."""

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


class GrpcFeed:
    """A stream through grpc.aio, on a channel of its own, so that it goes on when certificates are replaced. A full inbox stops the
    reading, so HTTP/2 flow control stops the store."""

    def __init__(self, channel: Any, slot: int, inbox: Inbox, method: Method) -> None:
        self.slot, self.inbox = slot, inbox
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[FeedEnd] = loop.create_future()
        self._requests: asyncio.Queue[bytes] = asyncio.Queue()
        call = channel.stream_stream(str(method), request_serializer=None, response_deserializer=None)
        self._call = call(metadata=tuple(method.metadata) or None)
        self._tasks = [loop.create_task(self._write()), loop.create_task(self._read())]
        self._closing = loop.create_task(self._close(channel))

    def send(self, request: bytes) -> None:
        """Queue a request."""
        self._requests.put_nowait(request)

    def cancel(self) -> None:
        """End the stream."""
        self._end(FeedEnd(CANCELLED, "cancelled"))

    def _end(self, end: FeedEnd) -> None:
        if not self.ended.done():
            self.ended.set_result(end)
            self._call.cancel()
            for task in self._tasks:
                if task is not asyncio.current_task():
                    task.cancel()

    async def _close(self, channel: Any) -> None:
        await asyncio.wait([self.ended])
        await channel.close()

    async def _write(self) -> None:
        try:
            while True:
                await self._call.write(await self._requests.get())
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the reader hears why

    async def _read(self) -> None:
        loop, read, put, slot = asyncio.get_running_loop(), self._call.read, self.inbox.put, self.slot
        try:
            while (message := await read()) is not grpc.aio.EOF:
                if not put(slot, message):
                    room = asyncio.Event()
                    self.inbox.when_room(partial(loop.call_soon_threadsafe, room.set))
                    await room.wait()
            status, details = await self._call.code(), await self._call.details()
        except grpc.aio.AioRpcError as e:
            status, details = e.code(), e.details()
        self._end(FeedEnd(status.value[0], f"{status.name} {details or ''}".rstrip()))


LEAST_WINDOW, LARGEST_WINDOW = 1 << 20, 16 << 20


def window_of(memory: int, streams: int) -> int:
    """Bytes that a stream may have under way when there are so many streams: together a quarter of the memory quota, within bounds."""
    return max(LEAST_WINDOW, min(LARGEST_WINDOW, memory // 4 // max(streams, 1)))


async def open_feed(
    transport: Transport, address: str, slot: int, inbox: Inbox, method: Method, channels: Channels, window: int = LARGEST_WINDOW
) -> Feed:
    """A stream to the store at `host:port`. Raises OSError where it cannot be connected (h2; grpc ends the stream instead)."""
    if transport is Transport.GRPC:
        return GrpcFeed(channels.own(address), slot, inbox, method)
    connect = await asyncio.to_thread(_h2)
    return await connect(address, slot, inbox, method, channels.security, window)


def _h2() -> Callable[..., Awaitable[Feed]]:
    """In a thread: kernels are compiled the first time."""
    from tidemill.capture.tikv.feed import http2

    return http2.connect
