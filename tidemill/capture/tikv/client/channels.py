"""gRPC channels by address, opened on first use, and the pace of retries."""

from __future__ import annotations

import asyncio
import random
import re
from typing import Any

import grpc

from tidemill.capture.tikv.client.tls import Security, Stamp
from tidemill.errors import ConfigError, UpstreamUnavailable, redact

# No keepalive without calls: PD's server takes PINGs on an idle connection for an attack and closes it (too_many_pings).
OPTIONS = (
    ("grpc.max_receive_message_length", 256 << 20),  # one row may be 2 x 120 MiB
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 2_000),  # time for one attempt: a TLS handshake over a long distance takes a while
    ("grpc.max_reconnect_backoff_ms", 3_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),  # a proxy from the environment is never meant for PD or TiKV
)


RETIRE_AFTER = 60.0
"""Seconds after which a channel with replaced certificates is closed: no call takes this long. (A stream of timestamps is opened again.)"""

_SCHEME = re.compile(r"https?://", re.IGNORECASE)
_NOT_IN_HOST = re.compile(r"[/@?#\s]")


class Channels:
    """One channel per address, with TLS if there is `security`. Belongs to the event loop that first uses it."""

    def __init__(self, security: Security | None = None) -> None:
        self.security = security
        self._open: dict[str, Any] = {}
        self._retired: dict[Any, asyncio.Task[None]] = {}
        self._stamp: Stamp = ()

    def get(self, address: str) -> Any:
        """Return the channel to `host:port`. Raises ConfigError if the TLS files are unusable."""
        if self.security is not None and (stamp := self.security.stamp()) != self._stamp:
            for old in self._open.values():
                self._retired[old] = asyncio.get_running_loop().create_task(self._retire(old))
            self._open, self._stamp = {}, stamp
        channel = self._open.get(address)
        if channel is None:
            channel = self._open[address] = self.own(address)
        return channel

    def own(self, address: str) -> Any:
        """Open a channel to `host:port` of one's own; the caller closes it. Raises ConfigError, UpstreamUnavailable for no address."""
        check_advertised(address)
        if self.security is None:
            return grpc.aio.insecure_channel(address, options=OPTIONS, interceptors=[_Readable()])
        return grpc.aio.secure_channel(address, self.security.credentials(), options=OPTIONS, interceptors=[_Readable()])

    async def _retire(self, channel: Any) -> None:
        await asyncio.sleep(RETIRE_AFTER)
        await channel.close()
        del self._retired[channel]

    async def close(self) -> None:
        """Close all channels."""
        opened, self._open = [*self._open.values(), *self._retired], {}
        retiring, self._retired = self._retired, {}
        for task in retiring.values():
            task.cancel()
        await asyncio.gather(*retiring.values(), return_exceptions=True)
        for channel in opened:
            await channel.close()


class _Readable(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """Lets a call fail whose answer cannot be read: grpc.aio logs that, and returns None."""

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """Make the call."""
        call = await continuation(client_call_details, request)
        if await call is None:
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.INTERNAL, await call.initial_metadata(), await call.trailing_metadata(), "its answer cannot be read"
            )
        return call


class Backoff:
    """Waiting times in seconds: `first`, 2 x first, … `cap`, each shortened by up to a half at random."""

    def __init__(self, first: float = 0.05, cap: float = 2.0) -> None:
        self.first, self.cap = first, cap
        self._next = first

    def next(self) -> float:
        """Return the time to wait now."""
        wait = self._next * random.uniform(0.5, 1.0)
        self._next = min(2 * self._next, self.cap)
        return wait

    def reset(self) -> None:
        """Begin from `first` again, after a success."""
        self._next = self.first


def plain_address(address: str) -> str:
    """Return `host:port` of an address that may be a URL."""
    return _SCHEME.sub("", address.strip()).rstrip("/")


def is_address(text: str) -> bool:
    """Whether a text is HOST:PORT."""
    host, _, port = text.rpartition(":")
    fits = host and not _NOT_IN_HOST.search(host) and (":" not in host or (host[0], host[-1]) == ("[", "]"))
    return bool(fits) and port.isdecimal() and len(port) < 6 and 0 < int(port) < 65536


def check_advertised(address: str) -> None:
    """Raises UpstreamUnavailable for what is not HOST:PORT: a cluster's members may tell anything, and gRPC opens Unix sockets too."""
    if not is_address(address):
        raise UpstreamUnavailable(f"the cluster tells of {address[:100]!r}, which is not a HOST:PORT")


def checked_address(address: str, flag: str) -> str:
    """Return `host:port` of an address that a user gave. Raises ConfigError that names the flag."""
    plain = plain_address(address)
    if not is_address(plain):
        raise ConfigError(
            f"{flag} {redact(address.strip())!r} is not a HOST:PORT",
            hint="Name PD's client addresses, as 10.0.1.5:2379, http://pd-0:2379 or [fd00::5]:2379; several with commas.",
        )
    return plain
