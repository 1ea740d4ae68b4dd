"""The process that holds back garbage collection for one query: `python -m tidemill.spark.table.keeper`.

The process that plans a query ends with the plan, and tasks run on other machines. So it starts this one, on the driver's machine. Each
task connects to it, and tells when it has read its part. It ends, and removes its safe point from PD,

- when all tasks have read their parts;
- when no task has been connected for `IDLE_S`: the query needs no more of them (LIMIT), or has failed;
- when the query's process is gone.

In, by stdin: a `Keeping`, see `process.orders`. Out, by stdout: the port, once.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from dataclasses import dataclass

from tidemill.capture.tikv.gc import GcGuard
from tidemill.errors import StartTsBeforeGc, UpstreamError
from tidemill.process import orders
from tidemill.process.driver import lives
from tidemill.spark.cluster.connection import Cluster, connected

TTL_S = 300
"""Seconds for which PD keeps a safe point that is not renewed."""
IDLE_S = 600.0
LOOK_S = 1.0
GREETING_S = 10.0
STRANGERS = 256
"""Connections that have not sent the token. Then the oldest is closed: on a cluster the port is on the network, and descriptors are few."""
LONGEST = 1024
"""Bytes of a line, before the token too."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Keeping:
    """What is held for which query. `pid`: the process without which there is no query; 0: none. `host`: where tasks connect to."""

    cluster: Cluster
    service_id: str
    ts: int
    tasks: int
    token: str
    pid: int
    host: str


class Tasks:
    """The tasks of a query, as they connect and end."""

    def __init__(self, n: int, token: str, idle_s: float = IDLE_S) -> None:
        self._n, self._token, self._idle_s = n, token, idle_s
        self._done: set[int] = set()
        self._connected = 0
        self._moved = time.monotonic()
        self._strangers: dict[asyncio.StreamWriter, None] = {}  # in the order in which they came
        self.change = asyncio.Event()

    def is_over(self) -> bool:
        """Whether all tasks have read their parts, or no further task will connect."""
        if self._connected:
            return False
        return len(self._done) >= self._n or time.monotonic() - self._moved > self._idle_s

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one task: it sends the token, and is told `held`; then, when it has read its part, its number."""
        self._strangers[writer] = None
        if len(self._strangers) > STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.transport.abort()
        try:
            greeting = await asyncio.wait_for(reader.readline(), GREETING_S)
            self._strangers.pop(writer, None)
            if not hmac.compare_digest(greeting.strip(), self._token.encode()):
                return
            self._count(1)
            try:
                writer.write(b"held\n")
                told = (await reader.readline()).strip()
                if told.isdigit():
                    self._done.add(int(told))
            finally:
                self._count(-1)
        except (OSError, TimeoutError, ValueError):
            return
        finally:
            self._strangers.pop(writer, None)
            writer.close()

    def _count(self, step: int) -> None:
        self._connected += step
        self._moved = time.monotonic()
        self.change.set()


async def hold(cluster: Cluster, service_id: str, ts: int, over: asyncio.Event) -> None:
    """Renew a safe point at PD that exists until `over` is set, then remove it. Raises StartTsBeforeGc if it has been lost."""
    async with connected(cluster) as pd:
        guard = GcGuard(pd, service_id, TTL_S)
        try:
            while not over.is_set():
                try:
                    await guard.protect(ts)
                except StartTsBeforeGc:
                    raise
                except UpstreamError as error:  # it lasts for its TTL
                    _log.warning("the safe point %s could not be renewed: %s", service_id, error.message)
                await _waited(over, TTL_S / 3)
        finally:
            await guard.remove()


async def _waited(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return


async def keep(keeping: Keeping) -> None:
    """Hold the safe point until the query is over."""
    tasks, over = Tasks(keeping.tasks, keeping.token), asyncio.Event()
    server = await asyncio.start_server(tasks.serve, keeping.host, 0, limit=LONGEST)
    print(server.sockets[0].getsockname()[1], flush=True)
    holding = asyncio.ensure_future(hold(keeping.cluster, keeping.service_id, keeping.ts, over))
    while not holding.done() and not tasks.is_over() and lives(keeping.pid):
        tasks.change.clear()
        await _waited(tasks.change, LOOK_S)
    over.set()
    server.close()
    await holding


def main() -> None:
    """Entry point."""
    keeping = orders.take(Keeping)
    try:
        asyncio.run(keep(keeping))
    except UpstreamError as error:  # PD forgets the safe point at the end of its TTL; a task that begins later finds out by itself
        _log.warning("%s", error.message)


if __name__ == "__main__":
    main()
