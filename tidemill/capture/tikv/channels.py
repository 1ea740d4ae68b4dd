"""gRPC channels by address, opened when first asked for, and the pace of retries."""

from __future__ import annotations

import random
from typing import Any

import grpc

from tidemill.capture.tikv.security import Security, Stamp

# No keepalive without calls: PD's server takes PINGs on a connection without calls for an attack and closes it (too_many_pings).
OPTIONS = (
    ("grpc.max_receive_message_length", 256 << 20),  # one row may be 2 x 120 MiB
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 3_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),  # a proxy of the environment is never meant for PD or TiKV
)


class Channels:
    """One channel an address, with TLS if there is `security`. Belongs to the event loop that first uses it."""

    def __init__(self, security: Security | None = None) -> None:
        self.security = security
        self._open: dict[str, Any] = {}
        self._retired: list[Any] = []
        self._stamp: Stamp = ()

    def get(self, address: str) -> Any:
        """The channel to `host:port`. Raises ConfigError for files of TLS that cannot be used."""
        if self.security is not None and (stamp := self.security.stamp()) != self._stamp:
            self._retired += self._open.values()  # calls on them may be under way
            self._open, self._stamp = {}, stamp
        channel = self._open.get(address)
        if channel is None:
            if self.security is None:
                channel = grpc.aio.insecure_channel(address, options=OPTIONS)
            else:
                channel = grpc.aio.secure_channel(address, self.security.credentials(), options=OPTIONS)
            self._open[address] = channel
        return channel

    async def close(self) -> None:
        """Close all channels."""
        opened, self._open = [*self._open.values(), *self._retired], {}
        self._retired = []
        for channel in opened:
            await channel.close()


class Backoff:
    """Waiting times `first`, 2 x first, … `cap` in seconds, each between a half and the whole of it."""

    def __init__(self, first: float = 0.05, cap: float = 2.0) -> None:
        self.first, self.cap = first, cap
        self._next = first

    def next(self) -> float:
        """The time to wait now."""
        wait = self._next * random.uniform(0.5, 1.0)
        self._next = min(2 * self._next, self.cap)
        return wait

    def reset(self) -> None:
        """Something went well: begin from `first` again."""
        self._next = self.first


def plain_address(address: str) -> str:
    """`host:port` of an address that may be written as a URL."""
    return address.strip().removeprefix("http://").removeprefix("https://").rstrip("/")
