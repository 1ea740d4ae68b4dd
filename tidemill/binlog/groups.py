"""Binlogs that wait to be written, as records of the value log, in groups: a group is written at once and synced once. No IO.

Kernels put records into the group that is open, each with a MARK (`tidemill/kernels/pump/layout.py`) that says what it is and who is to be
answered. Belongs to one thread; the bytes of a group that `take` gave may be read by another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from tidemill.binlog.messages import Head
from tidemill.kernels.address import address
from tidemill.kernels.pump import layout as L
from tidemill.kernels.pump.intake import frame_one

GROUP_BYTES = 1 << 20
"""Bytes of records that are written and synced together. A record that is larger has a group of its own."""
GROUP_BINLOGS = 4096
SPARE = 4
"""Empty groups that are kept."""


class Group:
    """Records, one behind the other. `waiting`: by its number in the group, who waits for a binlog that came by no kernel."""

    def __init__(self, size: int = GROUP_BYTES) -> None:
        self.data: Any = np.empty(size, np.uint8)
        self.marks: Any = np.empty((GROUP_BINLOGS, L.MARK_WORDS), np.int64)
        self.words = np.zeros(L.G_WORDS, np.int64)
        self.words[[L.G_DATA, L.G_CAP, L.G_MARKS, L.G_MOST]] = address(self.data), size, address(self.marks), GROUP_BINLOGS
        self.address = address(self.words)
        self.waiting: dict[int, Any] = {}

    @property
    def count(self) -> int:
        """How many binlogs."""
        return int(self.words[L.G_COUNT])

    @property
    def size(self) -> int:
        """The bytes of all records."""
        return int(self.words[L.G_SIZE])

    @property
    def records(self) -> memoryview:
        """All records."""
        return memoryview(self.data)[: self.size]

    @property
    def greatest_ts(self) -> int:
        """The greatest start_ts or commit_ts."""
        return int(self.marks[: self.count, L.M_START : L.M_COMMIT + 1].max())

    def clear(self) -> None:
        """Use it again."""
        self.words[[L.G_SIZE, L.G_COUNT]] = 0
        self.waiting.clear()


class Groups:
    """`policy`: what kernels ask before they take a binlog, see P_CLUSTER and P_PREWRITES."""

    def __init__(self) -> None:
        self.policy = np.zeros(L.P_WORDS, np.int64)
        self.policy_at = address(self.policy)
        self.open = Group()
        self._full: deque[Group] = deque()
        self._spare: list[Group] = []
        self._out: list[Group] = []
        self._mark = np.zeros(L.MARK_WORDS, np.int64)
        self._mark_at = address(self._mark)

    def say(self, cluster_id: int, *, prewrites: bool) -> None:
        """Set what kernels take: binlogs of this cluster, and whether Prewrites."""
        self.policy.view(np.uint64)[L.P_CLUSTER] = cluster_id
        self.policy[L.P_PREWRITES] = prewrites

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return not self._full and self.open.count == 0

    @property
    def held(self) -> int:
        """Bytes that wait or are being written."""
        return self.open.size + sum(group.size for group in (*self._full, *self._out))

    def next(self, need: int) -> None:
        """Open another group, with room for a record of `need` bytes."""
        if self.open.count:
            self._full.append(self.open)
        elif len(self.open.data) == GROUP_BYTES:
            self._spare.append(self.open)
        self.open = self._spare.pop() if need <= GROUP_BYTES and self._spare else Group(max(need, GROUP_BYTES))

    def add(self, payload: bytes, head: Head, slot: int = 0, stream: int = 0, waiting: Any = None) -> None:
        """Add one binlog."""
        self._mark[: L.M_AT] = int(head.tp), head.start_ts, head.commit_ts
        self._mark[L.M_SLOT], self._mark[L.M_STREAM] = slot, stream
        data = np.frombuffer(payload, np.uint8)
        while not frame_one(L.TABLES, self.open.address, address(data), len(payload), self._mark_at):
            self.next(L.RECORD_HEAD + len(payload))
        if waiting is not None:
            self.open.waiting[self.open.count - 1] = waiting

    def take(self) -> Group | None:
        """The next group to write. `done` gives it back."""
        if not self._full:
            if self.open.count == 0:
                return None
            self.next(0)
        group = self._full.popleft()
        self._out.append(group)
        return group

    def done(self, group: Group) -> None:
        """A group was dealt with, and may be used again."""
        self._out.remove(group)
        group.clear()
        if len(self._spare) < SPARE and len(group.data) == GROUP_BYTES:
            self._spare.append(group)

    def live(self) -> Iterable[Group]:
        """All groups whose binlogs are not answered, oldest first."""
        return (*self._out, *self._full, self.open)

    def cancel(self, slot: int, stream: int) -> bool:
        """The answer to a binlog is not wanted any more. Return whether it was still to come."""
        for group in self.live():
            marks = group.marks[: group.count]
            found = np.flatnonzero((marks[:, L.M_STREAM] == stream) & (marks[:, L.M_SLOT] == slot))
            if len(found):
                marks[found, L.M_STREAM] = 0
                return True
        return False
