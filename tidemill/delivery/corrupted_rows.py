"""Warns of rows that do not fit their checksum and are sent nevertheless (corruption-handle-level = warn)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from tidemill.delivery.work_item import NAMED_ROWS, TaskStats

log = logging.getLogger(__name__)

EVERY_S = 10.0


@dataclass(slots=True)
class CorruptedRows:
    """The first warning comes at once. Later rows are counted and reported together, at most every ten seconds."""

    clock: Callable[[], float] = time.monotonic
    _count: int = 0
    _next: float = 0.0

    def tell(self, stats: TaskStats) -> None:
        """Count the corrupted rows of a batch, and warn if a warning is due."""
        self._count += stats.corrupted_rows
        if not stats.corrupted_rows or self.clock() < self._next:
            return
        names = "; ".join(stats.corrupted[:NAMED_ROWS])
        log.warning("%d rows do not fit their checksum and are sent marked as corrupted: %s", self._count, names)
        self._count, self._next = 0, self.clock() + EVERY_S
