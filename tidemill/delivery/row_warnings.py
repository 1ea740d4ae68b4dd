"""Warns of rows with which something is wrong, and that are delivered nevertheless: those that do not fit their checksum
(corruption-handle-level = warn), and those that a database should have had and had not."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidemill.delivery.work_item import NAMED_ROWS, TaskStats

log = logging.getLogger(__name__)

EVERY_S = 10.0
CORRUPTED = "%d rows do not fit their checksum and are sent marked as corrupted: %s"
MISSED = (
    "%d rows that were to be changed or deleted were not in the database: %s. The database was changed by others, or was not as the "
    "upstream when the changefeed began; `tidemill diff` compares them"
)


@dataclass(slots=True)
class RowWarning:
    """The first warning comes at once. Later rows are counted and reported together, at most every ten seconds."""

    text: str
    clock: Callable[[], float] = time.monotonic
    _count: int = 0
    _next: float = 0.0

    def tell(self, count: int, names: Sequence[str]) -> None:
        """Count the rows of a batch, and warn if a warning is due."""
        self._count += count
        if not count or self.clock() < self._next:
            return
        log.warning(self.text, self._count, "; ".join(names[:NAMED_ROWS]))
        self._count, self._next = 0, self.clock() + EVERY_S


@dataclass(slots=True)
class RowWarnings:
    """All kinds."""

    corrupted: RowWarning = field(default_factory=lambda: RowWarning(CORRUPTED))
    missed: RowWarning = field(default_factory=lambda: RowWarning(MISSED))

    def tell(self, stats: TaskStats) -> None:
        """Warn of the rows of a batch, where a warning is due."""
        self.corrupted.tell(stats.corrupted_rows, stats.corrupted)
        self.missed.tell(stats.missed_rows, stats.missed)
