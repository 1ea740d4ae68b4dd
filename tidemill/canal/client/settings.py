"""What a client is told: where the server is, who it is, how long it waits."""

from __future__ import annotations

import enum
import ssl
from dataclasses import dataclass, field
from typing import TypedDict

from tidemill.errors import ConfigError
from tidemill.protocols.canal.packets import MAX_FRAME

PORT = 11111
CLIENT_ID = 1001
"""What Canal's own clients use."""
BATCH_SIZE = 1000

_SMALLEST_ID, _LARGEST_ID = -(1 << 15), (1 << 15) - 1


class Unit(enum.IntEnum):
    """The unit of a GET's timeout, as the protocol numbers them."""

    NANOSECONDS = 0
    MICROSECONDS = 1
    MILLISECONDS = 2
    SECONDS = 3
    MINUTES = 4
    HOURS = 5
    DAYS = 6

    def seconds(self, timeout: int) -> float:
        """Return so many units in seconds."""
        return timeout * _SECONDS[self]


_SECONDS = {
    Unit.NANOSECONDS: 1e-9,
    Unit.MICROSECONDS: 1e-6,
    Unit.MILLISECONDS: 1e-3,
    Unit.SECONDS: 1.0,
    Unit.MINUTES: 60.0,
    Unit.HOURS: 3600.0,
    Unit.DAYS: 86400.0,
}


@dataclass(frozen=True, slots=True)
class Backoff:
    """How often, and after how many seconds, a lost connection is tried again. `tries` None: until it works."""

    first: float = 0.2
    factor: float = 2.0
    longest: float = 30.0
    tries: int | None = None

    def delay(self, attempt: int) -> float | None:
        """Return the seconds before the attempt with this number, from 0 on; None: give up."""
        if self.tries is not None and attempt >= self.tries:
            return None
        return float(min(self.first * self.factor ** min(attempt, 64), self.longest))


class Options(TypedDict, total=False):
    """What can be given to a client by name. See `Settings`."""

    client_id: int
    user: str | None
    password: str | None
    filter: str | None
    tls: ssl.SSLContext | None
    connect_timeout: float
    answer_timeout: float
    idle_timeout: float
    rollback_on_connect: bool
    reconnect: Backoff | None
    lazy: bool
    max_frame: int


@dataclass(frozen=True, slots=True)
class Settings:
    """Times are seconds.

    password: None sends none, "" the token of the empty one. filter: what is subscribed to when the connection is made; "" leaves the
    choice to the server; None waits for `subscribe`. tls: a client context; Canal's own server has no TLS. answer_timeout: how long the
    server may be silent while an answer is due, besides the time that a GET may wait. idle_timeout: after which the server may close a
    connection that is not used. rollback_on_connect: what an earlier process left open comes again, as with Canal's Java client; without it
    those batches stay open and can be acknowledged by id. reconnect: None: by the caller only. lazy: entries are not even looked at before
    they are asked for. max_frame: bytes of the largest answer that is read.
    """

    host: str
    port: int = PORT
    destination: str = ""
    client_id: int = CLIENT_ID
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    filter: str | None = None
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    connect_timeout: float = 10.0
    answer_timeout: float = 60.0
    idle_timeout: float = 3600.0
    rollback_on_connect: bool = True
    reconnect: Backoff | None = field(default_factory=Backoff)
    lazy: bool = False
    max_frame: int = MAX_FRAME

    def __post_init__(self) -> None:
        if not self.destination:
            raise ConfigError("destination: a Canal client needs the name of one")
        if not _SMALLEST_ID <= self.client_id <= _LARGEST_ID:
            raise ConfigError(f"client_id: {self.client_id} is not from {_SMALLEST_ID} to {_LARGEST_ID}")
        if not 0 < self.port < 1 << 16:
            raise ConfigError(f"port: {self.port} is not a port")

    @property
    def address(self) -> str:
        """HOST:PORT, for messages."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
