"""Holds back garbage collection while a query runs: the planner starts a keeper, and tasks tell it that they read.

A task that does not reach the keeper (it has ended with an earlier run of the same plan, or the network lets nothing through) holds a safe
point of its own.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.gc import GcGuard, service_id
from tidemill.errors import StartTsBeforeGc, UpstreamUnavailable
from tidemill.process.driver import begin_beside, driver_pid
from tidemill.spark.cluster.connection import Cluster
from tidemill.spark.table.keeper import GREETING_S, TTL_S, Keeping
from tidemill.spark.table.upstream import collected

OWN_TTL_S = 1800
"""Seconds for which PD keeps a task's own safe point. Spark may take its time between two batches."""


@dataclass(frozen=True, slots=True)
class Hold:
    """What tasks know of the query's safe point. `token` lets them speak with the keeper."""

    cluster: Cluster
    service_id: str
    ts: int
    host: str
    port: int
    token: str


async def protect(pd: PdClient, service_id: str, ts: int, ttl: int = TTL_S) -> None:
    """Set a safe point. Raises StartTsBeforeGc that says what to do."""
    try:
        await GcGuard(pd, service_id, ttl).protect(ts)
    except StartTsBeforeGc:
        state = await pd.gc_state()
        limit = max(state.txn_safe_point, state.gc_safe_point) if state is not None else await pd.gc_safe_point()
        raise collected(ts, limit if limit > ts else None) from None


async def start_keeper(pd: PdClient, cluster: Cluster, ts: int, tasks: int) -> Hold:
    """Hold the ts under a name of its own, and start the process that goes on with it. Raises StartTsBeforeGc, UpstreamUnavailable."""
    name = f"{service_id(pd.cluster_id, 'table')}-{secrets.token_hex(8)}"
    await protect(pd, name, ts)
    token, host = secrets.token_hex(16), _address_towards(pd.leader)
    keeping = Keeping(cluster.absolute(), name, ts, tasks, token, driver_pid(), host)
    port = await asyncio.to_thread(_started, keeping)
    return Hold(cluster, name, ts, host, port, token)


def _started(keeping: Keeping) -> int:
    """Start the keeper's process, and return its port."""
    process = begin_beside("tidemill.spark.table.keeper", keeping, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout, suppress(ValueError):
        return int(process.stdout.readline())
    process.kill()
    process.wait()
    raise UpstreamUnavailable("the process that holds back garbage collection for the query has not started")


def _address_towards(pd: str) -> str:
    """The address of this machine on the way to PD: workers reach PD, too."""
    host, _, port = pd.rpartition("://")[2].rpartition(":")
    for family, kind, protocol, _, address in socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM):
        with suppress(OSError), socket.socket(family, kind, protocol) as probe:
            probe.connect(address)  # sends nothing
            return str(probe.getsockname()[0])
    return "127.0.0.1"


@contextmanager
def told(one: Hold, number: int) -> Iterator[bool]:
    """Tell the keeper of a task while it reads, and that it has read its part. Yields whether there is a keeper."""
    line = _greeted(one)
    if line is None:
        yield False
        return
    with line:
        yield True
        with suppress(OSError):
            line.sendall(b"%d\n" % number)


def _greeted(one: Hold) -> socket.socket | None:
    """A connection to the keeper; None: it is not there."""
    with suppress(OSError):
        line = socket.create_connection((one.host, one.port), GREETING_S)
        with suppress(OSError):
            line.sendall(one.token.encode() + b"\n")
            if line.recv(16) == b"held\n":
                return line
        line.close()
    return None


class OwnSafePoint:
    """The safe point of a task that reaches no keeper. It is renewed between pages."""

    def __init__(self, pd: PdClient, one: Hold) -> None:
        self._pd, self._ts = pd, one.ts
        self._name = f"{one.service_id}-{secrets.token_hex(4)}"
        self._renewed = 0.0

    async def begin(self) -> None:
        """Raises StartTsBeforeGc if rows as of the ts may have been collected."""
        await protect(self._pd, self._name, self._ts, OWN_TTL_S)
        self._renewed = time.monotonic()

    async def renew(self) -> None:
        """Renew it from time to time."""
        if time.monotonic() - self._renewed > OWN_TTL_S / 10:
            with suppress(UpstreamUnavailable):  # it lasts for its TTL
                await self.begin()

    async def end(self) -> None:
        """Remove it."""
        with suppress(UpstreamUnavailable):
            await GcGuard(self._pd, self._name, OWN_TTL_S).remove()
