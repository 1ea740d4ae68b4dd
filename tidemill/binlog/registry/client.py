"""Reads, writes and watches nodes in PD's etcd.

The etcd client is etcd3aio's. It gets channels to PD's members from here: those have PD's addresses and TLS, with names as well as numbers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import grpc

from tidemill.binlog.nodes import Node, NodeKind, read_node
from tidemill.capture.tikv.client.channels import Backoff
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.errors import MalformedMessage, UpstreamError, UpstreamUnavailable
from tidemill.extras import extra

with extra("binlog"):
    from etcd3aio.errors import EtcdError, EtcdPermissionDeniedError, EtcdUnauthenticatedError
    from etcd3aio.kv import KVService, prefix_range_end
    from etcd3aio.watch import WatchService

CALL_TIMEOUT = 3.0
"""Seconds of one call."""

LOOK_EVERY = 10.0
"""Seconds after which nodes are read again even if a watch tells nothing: a connection may be dead without anybody noticing."""

Nodes = dict[str, Node]
T = TypeVar("T")

_log = logging.getLogger(__name__)


class Registry:
    """The nodes of one cluster. Belongs to PD's client's event loop. `retry_s`: seconds that a call may take with all its tries."""

    def __init__(self, pd: PdClient, retry_s: float = 10.0) -> None:
        self._pd, self.retry_s = pd, retry_s
        self._told: set[bytes] = set()

    async def put(self, kind: NodeKind, node: Node) -> None:
        """Write a node's value. Raises UpstreamUnavailable, UpstreamError."""

        async def call(channel: Any) -> None:
            await KVService(channel, max_attempts=1).put(kind.key(node.node_id), node.encode(), timeout=CALL_TIMEOUT)

        await self._retry(f"put of {kind.key(node.node_id)}", call)

    async def get(self, kind: NodeKind, node_id: str) -> Node | None:
        """Return a node, or None. Raises UpstreamUnavailable, UpstreamError, MalformedMessage."""

        async def call(channel: Any) -> Any:
            return await KVService(channel, max_attempts=1).get(kind.key(node_id), timeout=CALL_TIMEOUT)

        found = (await self._retry(f"get of {kind.key(node_id)}", call)).kvs
        return read_node(found[0].value) if found else None

    async def nodes(self, kind: NodeKind) -> Nodes:
        """Return all nodes of a kind by id. Values that describe no node are left out, with a warning. Raises UpstreamUnavailable,
        UpstreamError."""
        return (await self._list(kind))[0]

    async def _list(self, kind: NodeKind) -> tuple[Nodes, int]:
        """Return the nodes, and the revision that they are of."""

        async def call(channel: Any) -> Any:
            return await KVService(channel, max_attempts=1).get(kind.prefix, prefix_range_end(kind.prefix), timeout=CALL_TIMEOUT)

        answer = await self._retry(f"list of {kind.prefix}", call)
        nodes: Nodes = {}
        for pair in answer.kvs:
            self._take(nodes, kind, pair.key, pair.value)
        return nodes, int(answer.header.revision)

    def _take(self, nodes: Nodes, kind: NodeKind, key: bytes, value: bytes) -> None:
        """Add a node under the id in its key."""
        node_id = key.decode("utf-8", "backslashreplace").removeprefix(kind.prefix)
        try:
            nodes[node_id] = read_node(value)
        except MalformedMessage as error:
            nodes.pop(node_id, None)
            if value not in self._told:
                self._told.add(value)
                _log.warning("the %s %s is left out: %s", kind.word, node_id, error.message)

    async def watch(self, kind: NodeKind) -> AsyncIterator[Nodes]:
        """Yield all nodes of a kind: at once, and again after each change. The dictionary is a new one each time.

        A broken connection is made again, with a warning, for as long as it takes. Raises UpstreamError where a retry would not help.
        """
        backoff = Backoff(0.1, 3.0)
        before: Nodes | None = None
        while True:
            try:
                nodes, revision = await self._list(kind)
                if nodes != before:
                    before = nodes
                    yield dict(nodes)
                async for changed in self._changes(kind, nodes, revision):
                    backoff.reset()
                    before = changed
                    yield dict(changed)
            except UpstreamUnavailable as error:
                _log.warning("the watch of %s broke off, and is made again: %s", kind.prefix, error.message)
                await asyncio.sleep(backoff.next())

    async def _changes(self, kind: NodeKind, nodes: Nodes, revision: int) -> AsyncIterator[Nodes]:
        """Yield `nodes` after each change above `revision`, until it is time to read all again. Raises UpstreamUnavailable."""
        address = self._pd.leader
        watch = WatchService(self._pd.channels.get(address), max_attempts=1)
        stream: Any = watch.watch(kind.prefix, prefix_range_end(kind.prefix), start_revision=revision + 1)
        until = time.monotonic() + LOOK_EVERY
        try:
            while True:
                try:
                    async with asyncio.timeout(max(0.0, until - time.monotonic())):
                        answer = await anext(stream)
                except (TimeoutError, StopAsyncIteration):
                    return
                if answer.canceled or answer.compact_revision:
                    return
                for event in answer.events:
                    if event.type == event.DELETE:
                        nodes.pop(event.kv.key.decode("utf-8", "backslashreplace").removeprefix(kind.prefix), None)
                    else:
                        self._take(nodes, kind, event.kv.key, event.kv.value)
                if answer.events:
                    yield nodes
        except (EtcdError, grpc.aio.AioRpcError) as error:
            raise _error_of(error, "watch", address) from None
        finally:
            await stream.aclose()

    async def _retry(self, what: str, call: Callable[[Any], Awaitable[T]]) -> T:
        """Ask PD's leader, then its other members, until one answers. Raises UpstreamUnavailable, UpstreamError."""
        until = time.monotonic() + self.retry_s
        backoff = Backoff(0.1, 1.0)
        while True:
            leader = self._pd.leader
            for address in dict.fromkeys((leader, *self._pd.addresses)):
                try:
                    return await call(self._pd.channels.get(address))
                except (EtcdError, grpc.aio.AioRpcError, TimeoutError) as error:
                    failed = _error_of(error, what, address)
                    if not isinstance(failed, UpstreamUnavailable):
                        raise failed from None
            wait = backoff.next()
            if time.monotonic() + wait > until:
                raise failed
            await asyncio.sleep(wait)


def _error_of(error: EtcdError | grpc.aio.AioRpcError | TimeoutError, what: str, address: str) -> UpstreamError:
    hint = "Is that PD's client port, and does it serve etcd's API? The registry of Pumps and Drainers lies in PD's etcd."
    if isinstance(error, EtcdPermissionDeniedError | EtcdUnauthenticatedError):
        return UpstreamError(f"etcd at {address} refuses the {what}: {error}")
    if isinstance(error, grpc.aio.AioRpcError):
        text = f"etcd at {address} does not take the {what}: {error.code().name} {error.details()}"
        if error.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INVALID_ARGUMENT):
            return UpstreamError(text, hint=hint)
        return UpstreamUnavailable(text, hint=hint)
    told = str(error) or f"no answer within {CALL_TIMEOUT:g} s"
    return UpstreamUnavailable(f"etcd at {address} does not answer the {what}: {told}", hint=hint)
