"""Garbage collection: old binlogs go, first from the index and then, file by file, from the value log. It waits for Drainers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from tidemill import tso
from tidemill.binlog.nodes import Node, NodeState
from tidemill.binlog.pump.index import LONG_MS
from tidemill.binlog.pump.store import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Cut:
    """Up to where binlogs may go. `held_by`: the Drainers that still need older ones than the age allows."""

    ts: int
    held_by: tuple[str, ...] = ()


def cut_of(now: int, keep_s: float, max_commit_ts: int, drainers: Iterable[Node], *, waits: bool) -> Cut:
    """Decide what may go: what is older than `keep_s`, and what each Drainer that is not offline has."""
    ts = min(max(0, now - tso.compose(int(keep_s * 1000))), max_commit_ts)
    behind = {node.node_id: node.max_commit_ts for node in drainers if node.state is not NodeState.OFFLINE and node.max_commit_ts < ts}
    if not waits or not behind:
        return Cut(ts)
    return Cut(min(behind.values()), tuple(sorted(behind)))


class Collector:
    """Carries out a cut."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.done_ts = store.index.gc_ts()
        self.deleted_keys = 0
        self.held_by: tuple[str, ...] = ()

    async def collect(self, cut: Cut) -> None:
        """Delete what lies before a cut, but for Prewrites of transactions that were committed after it. Raises OSError, PumpFailed."""
        self.held_by = cut.held_by
        if cut.held_by:
            _log.warning("garbage collection waits for the Drainers %s at %s", ", ".join(cut.held_by), tso.describe(cut.ts))
        if cut.ts <= self._store.index.gc_ts():
            return
        opened = min(self._store.order.open, default=cut.ts)
        keys, files = await asyncio.to_thread(self._delete, cut.ts, opened)
        self.done_ts, self.deleted_keys = cut.ts, self.deleted_keys + keys
        _log.info("garbage collection up to %s: %d keys and %d files went", tso.describe(cut.ts), keys, files)

    def _delete(self, ts: int, opened: int) -> tuple[int, int]:
        store = self._store
        long = store.index.oldest_start(ts)
        keep_from = min(ts - tso.compose(LONG_MS), opened, ts if long is None else long)
        keys, files = store.index.collect(ts, keep_from), 0
        last = min(store.log.end.file, store.index.begin().file)
        for number in store.log.files():
            if number >= last or store.log.greatest_ts(number) >= keep_from:
                break
            store.log.remove(number)
            files += 1
        return keys, files
