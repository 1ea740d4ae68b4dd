"""Looks up host names in a thread that nobody has to wait for.

An event loop does this in a thread pool that it joins when it closes. While a name server is down that takes half a minute, and Ctrl-C
would have to wait as well.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from contextlib import suppress

from tidemill.process import threads


async def addresses_of(host: str, port: int) -> list[str]:
    """Return the IP addresses of a name, in the order to try them. Raises OSError (socket.gaierror)."""
    with suppress(ValueError):
        return [str(ipaddress.ip_address(host))]
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[str]] = loop.create_future()

    def settle(found: list[str], error: OSError | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(found)

    def look_up() -> None:
        found: list[str] = []
        failure: OSError | None = None
        try:
            found = list(dict.fromkeys(str(told[4][0]) for told in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))
        except OSError as e:
            failure = e
        with suppress(RuntimeError):  # the loop has closed
            loop.call_soon_threadsafe(settle, found, failure)

    threads.begin(look_up)
    return await answer
