"""When Pump may give a binlog to Drainers: a queue in the order of arrival. A state machine without IO.

At a Prewrite the queue stops until its Commit or Rollback has arrived. At a Commit it passes on the greatest commit_ts so far: whoever
writes a Prewrite later takes a commit_ts from PD later, which is greater. So everything at or below that ts is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tidemill.binlog.indexkeys import Pointer
from tidemill.binlog.messages import BinlogType


@dataclass(frozen=True, slots=True)
class Stored:
    """A binlog that is in the value log: what the order needs to know of it. `since`: when it arrived, in seconds of some clock."""

    tp: BinlogType
    start_ts: int
    commit_ts: int
    at: Pointer
    since: float = 0.0


class Order:
    """`max_commit_ts`: where it begins. Prewrites that have neither Commit nor Rollback are `open`, by start_ts, oldest first."""

    def __init__(self, max_commit_ts: int = 0) -> None:
        self.max_commit_ts = max_commit_ts
        self.passed: Pointer | None = None
        """The last record that the queue has passed."""
        self.open: dict[int, Stored] = {}
        self._queue: deque[Stored] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def take(self, arrived: Sequence[Stored]) -> bool:
        """Add binlogs in the order of the value log. Return whether `max_commit_ts` has moved."""
        for one in arrived:
            self._queue.append(one)
            if one.tp is BinlogType.PREWRITE:
                self.open.setdefault(one.start_ts, one)
            else:
                self.open.pop(one.start_ts, None)
        return self._advance()

    def drop(self, start_ts: int) -> bool:
        """A Prewrite will never be committed. Return whether `max_commit_ts` has moved."""
        self.open.pop(start_ts, None)
        return self._advance()

    @property
    def held_by(self) -> Stored | None:
        """The Prewrite that stops the queue, if there is one."""
        return self._queue[0] if self._queue else None

    def _advance(self) -> bool:
        before, queue = self.max_commit_ts, self._queue
        while queue:
            first = queue[0]
            if first.tp is BinlogType.PREWRITE:
                if first.start_ts in self.open:
                    break
            elif first.commit_ts > self.max_commit_ts:
                self.max_commit_ts = first.commit_ts
            self.passed = first.at
            queue.popleft()
        return self.max_commit_ts > before
