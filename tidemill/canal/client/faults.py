"""The errors of a client, and whose fault each is."""

from __future__ import annotations

import enum

from tidemill.errors import TidemillError


class Fault(enum.Enum):
    """Who can do something about an error."""

    CALLER = "the caller's fault"
    SERVER = "the server's fault"
    NETWORK = "nobody's fault"


class CanalError(TidemillError):
    """Base of a client's errors."""

    code = "TM:ErrCanal"
    fault = Fault.SERVER


class CanalRefused(CanalError):
    """The server refuses a request: a wrong password, an unknown destination, a batch that is not open. `number` is its error code."""

    code = "TM:ErrCanalRefused"
    fault = Fault.CALLER
    number = 0

    @classmethod
    def of(cls, what: str, number: int, text: str, hint: str = "") -> CanalRefused:
        """Return the error for a request and the server's answer to it."""
        shown = text.split("\n", 1)[0][:500]  # Canal sends stack traces
        error = cls(f"the Canal server refuses {what}: {number} {shown}".rstrip(), hint=hint)
        error.number = number
        return error


class CanalBroken(CanalError):
    """The server sends what no Canal server sends. The connection is closed."""

    code = "TM:ErrCanalProtocol"
    fault = Fault.SERVER


class CanalUnavailable(CanalError):
    """The server cannot be reached, has closed the connection, or does not answer in time. Trying again can help."""

    code = "TM:ErrCanalUnavailable"
    fault = Fault.NETWORK
    retryable = True


class CanalMisuse(CanalError):
    """A call that is not possible now: nothing was sent."""

    code = "TM:ErrCanalClient"
    fault = Fault.CALLER
