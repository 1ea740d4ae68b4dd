"""Opens EventFeed streams over either transport."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tidemill.capture.tikv.client.channels import Channels, check_advertised
from tidemill.capture.tikv.feed.base import LARGEST_WINDOW, Feed, Method, Transport
from tidemill.capture.tikv.feed.grpc import GrpcFeed
from tidemill.capture.tikv.feed.inbox import Inbox
from tidemill.kernels.entries import load_imported


async def open_feed(
    transport: Transport, address: str, slot: int, inbox: Inbox, method: Method, channels: Channels, window: int = LARGEST_WINDOW
) -> Feed:
    """Open a stream to the store at `host:port`. Raises OSError if it cannot be connected (h2; grpc ends the stream instead), and
    UpstreamUnavailable for no address."""
    check_advertised(address)
    if transport is Transport.GRPC:
        await asyncio.to_thread(load_imported)  # kernels are compiled the first time
        return GrpcFeed(channels.own(address), slot, inbox, method)
    connect = await asyncio.to_thread(_h2)
    return await connect(address, slot, inbox, method, channels.security, window, buffers=inbox.buffers)


def _h2() -> Callable[..., Awaitable[Feed]]:
    """Import the transport, in a thread: kernels are compiled the first time."""
    from tidemill.capture.tikv.feed import http2

    load_imported()
    return http2.connect
