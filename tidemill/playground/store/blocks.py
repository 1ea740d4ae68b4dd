"""Rows that were loaded in bulk: immutable, packed, a few bytes of overhead each. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Version = tuple[int, int, bytes | None]


@dataclass(slots=True)
class Block:
    """Rows of one table and one transaction, sorted by key, all keys of one length.

    `keys` holds the keys back to back, `values` the values back to back, `ends` where each value ends (int64).
    `taken` marks rows that were changed since then, with the number of the change. These are in their tablet now.
    """

    start_ts: int
    commit_ts: int
    key_length: int
    keys: bytes
    values: bytes
    ends: npt.NDArray[np.int64]
    taken: dict[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def first_key(self) -> bytes:
        """The smallest key."""
        return self.key(0)

    def key(self, position: int) -> bytes:
        """The key of a row."""
        start = position * self.key_length
        return self.keys[start : start + self.key_length]

    def value(self, position: int) -> bytes:
        """The value of a row."""
        start = int(self.ends[position - 1]) if position else 0
        return self.values[start : int(self.ends[position])]

    def lower_bound(self, key: bytes) -> int:
        """The first row whose key is not below `key`."""
        low, high = 0, len(self.ends)
        while low < high:
            middle = (low + high) // 2
            if self.key(middle) < key:
                low = middle + 1
            else:
                high = middle
        return low

    def find(self, key: bytes) -> int | None:
        """The row with this key, unless it was taken."""
        if len(key) != self.key_length:
            return None
        position = self.lower_bound(key)
        if position < len(self.ends) and self.key(position) == key and position not in self.taken:
            return position
        return None

    def take(self, position: int, change: int) -> None:
        """Mark a row as changed, with the number of the change."""
        self.taken[position] = change

    def rows(self, start: bytes, end: bytes) -> Iterator[tuple[int, bytes, list[Version]]]:
        """Positions, keys and only versions of the rows in [start, end), in order; an empty end has no bound. Taken rows too."""
        low = self.lower_bound(start)
        high = self.lower_bound(end) if end else len(self.ends)
        length, keys, values = self.key_length, self.keys, self.values
        commit_ts, start_ts = self.commit_ts, self.start_ts
        at = int(self.ends[low - 1]) if low else 0
        for chunk in range(low, high, 4096):
            stop = min(chunk + 4096, high)
            for position, value_end in enumerate(self.ends[chunk:stop].tolist(), chunk):
                yield position, keys[position * length : (position + 1) * length], [(commit_ts, start_ts, values[at:value_end])]
                at = value_end
