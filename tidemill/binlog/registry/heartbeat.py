"""Keeps this process's entry in the registry: written at once when its state changes, and every few seconds."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from tidemill import tso
from tidemill.binlog.nodes import Node, NodeKind, NodeState
from tidemill.binlog.registry.client import Registry
from tidemill.errors import UpstreamUnavailable

_log = logging.getLogger(__name__)


def _nobody(_error: UpstreamUnavailable | None) -> None:
    """Hears what nobody asked for."""


class Entry:
    """`max_commit_ts` tells how far this process is when the entry is written. `began_ts`: a TSO of PD, taken just now.

    updateTS is `began_ts` and the whole seconds since, as the real programs do: hosts' clocks may differ.
    """

    def __init__(self, registry: Registry, kind: NodeKind, node: Node, began_ts: int, max_commit_ts: Callable[[], int]) -> None:
        self._registry, self._kind, self._node, self._max_commit_ts = registry, kind, node, max_commit_ts
        self._began_ts, self._began = began_ts, time.monotonic()
        self._turn = asyncio.Lock()
        self.failures = 0
        """How many writes have failed in a row."""

    @property
    def state(self) -> NodeState:
        """The state of the next write."""
        return self._node.state

    def now(self) -> Node:
        """Return the node as it would be written now."""
        seconds = int(time.monotonic() - self._began)
        return replace(self._node, max_commit_ts=self._max_commit_ts(), update_ts=self._began_ts + tso.compose(seconds * 1000))

    async def become(self, state: NodeState) -> None:
        """Change the state and write it. Raises UpstreamUnavailable, UpstreamError; the state is changed all the same."""
        self._node = self._node.with_state(state)
        await self.write()

    async def write(self) -> None:
        """Write the entry. Raises UpstreamUnavailable, UpstreamError."""
        async with self._turn:  # so that an older state is never written after a newer one
            await self._registry.put(self._kind, self.now())

    async def beat(self, every: float, most_failures: int = 0, *, told: Callable[[UpstreamUnavailable | None], None] = _nobody) -> None:
        """Write the entry every `every` seconds until cancelled; `told` hears after each time why it failed, or that it did not. Raises
        UpstreamUnavailable after `most_failures` failures in a row (0: never), UpstreamError where a retry would not help."""
        while True:
            await asyncio.sleep(every)
            try:
                await self.write()
                self.failures = 0
                told(None)
            except UpstreamUnavailable as error:
                self.failures += 1
                told(error)
                _log.warning("heartbeat %d in a row failed: %s", self.failures, error.message)
                if most_failures and self.failures >= most_failures:
                    raise
