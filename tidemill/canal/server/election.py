"""Servers of one store that take turns, by ZooKeeper, with the nodes that Canal's ClusterCanalConnector reads.

    /otter/canal/cluster/HOST:PORT                       ephemeral: a server
    /otter/canal/destinations/D/cluster/HOST:PORT        ephemeral: a server that can serve D
    /otter/canal/destinations/D/running                  ephemeral: {"active":true,"address":"HOST:PORT"}, the server that does

The server that makes `running` of the first destination, by name, serves all of them. ZooKeeper ends a session when it has not heard of its
client for the session's time; so a server serves only until that time after it last *asked*, by its own clock, and less a part. A server
that was frozen finds that over when it wakes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Iterable

from tidemill.extras import extra

with extra("canal"):
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
    from kazoo.handlers.threading import KazooTimeoutError
    from kazoo.protocol.states import KazooState
    from kazoo.retry import KazooRetry

ROOT = "/otter/canal"
SESSION_S = 10.0
MARGIN = 0.8
"""The part of the session's time for which the server trusts it."""
ASKS = 6
"""So often in that time ZooKeeper is asked."""

_Troubles = (KazooException, KazooTimeoutError)
_log = logging.getLogger(__name__)


def _now() -> float:
    """Seconds that go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Election:
    """One server among others. `acquire`, serve while `valid`, until `lost`; `release`; again."""

    def __init__(self, hosts: str, address: str, destinations: Iterable[str], session_s: float = SESSION_S) -> None:
        """`address`: HOST:PORT where clients reach this server."""
        self._hosts, self.address, self._destinations = hosts, address, sorted(destinations)
        self._session_s = session_s
        self._client = KazooClient(
            hosts=hosts, timeout=session_s, connection_retry=KazooRetry(max_tries=-1, max_delay=1.0), logger=_quiet()
        )
        self._until = 0.0
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self.lost = asyncio.Event()
        """This server does not serve any more."""

    def valid(self) -> bool:
        """Whether no other server can be serving."""
        return _now() < self._until

    async def start(self) -> None:
        """Begin to connect, and wait a moment for it."""
        self._loop = asyncio.get_running_loop()
        self._client.add_listener(self._session_changed)
        await asyncio.to_thread(self._client.start_async().wait, self._session_s)

    async def close(self) -> None:
        """End the session: what it made in ZooKeeper is gone."""
        await self.release()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with contextlib.suppress(*_Troubles):
            self._client.stop()
            self._client.close()

    async def acquire(self, over: asyncio.Event) -> bool:
        """Wait for this server's turn; False: it is over."""
        told = ""
        while not over.is_set():
            self._changed.clear()
            asked = _now()
            try:
                holder = await asyncio.to_thread(self._try)
            except _Troubles as error:
                holder = f"ZooKeeper at {self._hosts} does not answer ({type(error).__name__})"
            if not holder:
                self.lost.clear()
                self._until = asked + MARGIN * self._session_s
                self._task = asyncio.ensure_future(self._keep())
                _log.info("this server, %s, serves from now on", self.address)
                return True
            if holder != told:
                _log.info("waiting: %s", holder)
                told = holder
            await self._wait(over)
        return False

    async def _wait(self, over: asyncio.Event) -> None:
        """Until something changes in ZooKeeper, or it may have unseen."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._changed, over)]
        await asyncio.wait(waits, timeout=self._session_s / ASKS, return_when=asyncio.FIRST_COMPLETED)
        for one in waits:
            one.cancel()

    async def release(self) -> None:
        """Let another server serve."""
        task, self._task, self._until = self._task, None, 0.0
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            with contextlib.suppress(*_Troubles):
                await asyncio.to_thread(self._drop)

    async def _keep(self) -> None:
        """Ask again and again whether this server's node is there."""
        while True:
            asked = _now()
            try:
                if await asyncio.to_thread(self._is_mine, self._running(self._destinations[0])):
                    self._until = asked + MARGIN * self._session_s
                else:
                    self._until = 0.0
            except _Troubles as error:
                _log.warning("ZooKeeper at %s does not answer: %s", self._hosts, type(error).__name__)
            if not self.valid():
                _log.warning("this server, %s, does not serve any more: its session with ZooKeeper is over, or may be", self.address)
                self.lost.set()
                return
            await asyncio.sleep(MARGIN * self._session_s / ASKS)

    # ---- in threads

    def _session_changed(self, state: str) -> None:
        """Kazoo calls it in its own thread."""
        if state == KazooState.LOST:
            self._until = 0.0
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._changed.set)

    def _node_changed(self, event: object) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._changed.set)

    def _running(self, destination: str) -> str:
        return f"{ROOT}/destinations/{destination}/running"

    def _try(self) -> str:
        """Make the nodes; who keeps this server from serving, or nothing."""
        for folder in (ROOT, *(f"{ROOT}/destinations/{name}" for name in self._destinations)):
            self._make(f"{folder}/cluster/{self.address}", None)
        for name in self._destinations:
            if self._owned(self._running(name)) is False:
                return f"{self._holder(name)} serves {name}"
        content = json.dumps({"active": True, "address": self.address}, separators=(",", ":")).encode()
        for name in self._destinations:
            if not self._make(self._running(name), content):
                self._drop()  # one came between: clients would look for this server, which does not serve
                return f"{self._holder(name)} serves {name}"
        return ""

    def _make(self, path: str, content: bytes | None) -> bool:
        """Make an ephemeral node; False: another server's is there."""
        try:
            self._client.create_async(path, content, ephemeral=True, makepath=True).get(timeout=self._session_s)
        except NodeExistsError:
            return self._is_mine(path)
        return True

    def _is_mine(self, path: str) -> bool:
        return self._owned(path) is True

    def _owned(self, path: str) -> bool | None:
        """Whether a node is of this session; None: there is none. When it goes, `acquire` is woken."""
        try:
            _, stat = self._client.get_async(path, watch=self._node_changed).get(timeout=self._session_s)
        except NoNodeError:
            return None
        session = self._client.client_id
        return session is not None and stat.ephemeralOwner == session[0]

    def _holder(self, destination: str) -> str:
        try:
            data, _ = self._client.get_async(self._running(destination)).get(timeout=self._session_s)
            return str(json.loads(data)["address"])
        except (NoNodeError, ValueError, KeyError, TypeError, RecursionError):
            return "another server"

    def _drop(self) -> None:
        for name in reversed(self._destinations):
            if self._is_mine(self._running(name)):
                self._client.delete_async(self._running(name)).get(timeout=self._session_s)


def _quiet() -> logging.Logger:
    """Kazoo tells every step of a connection; what matters is told here."""
    made = logging.getLogger("kazoo.quiet")
    made.setLevel(logging.ERROR)
    return made
