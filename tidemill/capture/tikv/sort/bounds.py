"""Which rows that come to a partition belong to another one: those of tables that have moved away from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from tidemill.capture.tikv.receive.decode import PAD
from tidemill.capture.tikv.receive.memory import Array
from tidemill.changelog.spread import HandleRange
from tidemill.kernels.address import address
from tidemill.kernels.receive.seal import keep_owned

ALL_HANDLES: HandleRange = (b"", b"")


@dataclass(frozen=True, slots=True)
class Bound:
    """Rows of a physical table with ts < commit_ts <= until, and these handles, belong to another partition."""

    table_id: int
    ts: int
    until: int
    handles: HandleRange


class Bounds:
    """Immutable, so that a seal under way and the thread that is told of moves do not meet."""

    def __init__(self, bounds: Iterable[Bound] = ()) -> None:
        self._all = tuple(bounds)
        self._keys = [[np.frombuffer(key + bytes(PAD), np.uint8) for key in one.handles] for one in self._all]
        words = [
            (one.table_id, one.ts, one.until, address(low), len(one.handles[0]), address(high), len(one.handles[1]))
            for one, (low, high) in zip(self._all, self._keys, strict=True)
        ]
        self._words = np.array(words, np.int64).reshape(-1, 7)

    def __len__(self) -> int:
        return len(self._all)

    def with_one(self, bound: Bound) -> Bounds:
        """One more."""
        return Bounds((*self._all, bound))

    def cut(self, until: int, concerns: Callable[[Bound], bool]) -> Bounds:
        """Those that it concerns end at `until`, if they reach further."""
        return Bounds(replace(one, until=min(one.until, until)) if concerns(one) else one for one in self._all)

    def above(self, head: int) -> Bounds:
        """Without those that no row comes near any more: each row that is sealed is compared with all of them."""
        return Bounds(one for one in self._all if one.until > head) if self._all else self

    def keep(self, rows: Array) -> Array:
        """The rows that belong here; the others are overwritten."""
        if not self._all:
            return rows
        return rows[: keep_owned(address(rows), len(rows), address(self._words), len(self._all))]
