"""What the batch machine remembers: its phase, and the batch that is under way. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from tidemill.delivery.machine import actions as A
from tidemill.delivery.machine.retry import Pauses
from tidemill.delivery.position import Plan, Ranges
from tidemill.delivery.work_item import TaskResult, TaskStats, WorkItem
from tidemill.errors import TidemillError
from tidemill.tidb.schema.events import DdlEvent


class Phase(enum.StrEnum):
    """What the machine waits for."""

    IDLE = enum.auto()
    KEEPING = enum.auto()
    LEARNING = enum.auto()
    LISTING_BOOTSTRAPS = enum.auto()
    BOOTSTRAP_EPOCH = enum.auto()
    SENDING_BOOTSTRAPS = enum.auto()
    OPENING = enum.auto()
    CHECKING_TOPICS = enum.auto()
    BEGINNING = enum.auto()
    PLANNING = enum.auto()
    RUNNING = enum.auto()
    CHECKING_FENCE = enum.auto()
    LISTING_DDLS = enum.auto()
    SENDING_DDLS = enum.auto()
    RESOLVING = enum.auto()
    FINISHING = enum.auto()
    ANNOUNCING = enum.auto()
    SAVING = enum.auto()
    ENDING_EPOCH = enum.auto()
    CHECKING_TOPICS_AGAIN = enum.auto()
    WAITING = enum.auto()
    OVER = enum.auto()


@dataclass(slots=True)
class Batch:
    """The batch under way."""

    number: int
    from_ts: int
    to_ts: int
    ranges: Ranges
    plan: Plan | None  # None: no checkpoint is kept
    pauses: Pauses
    storage_pauses: Pauses
    attempts: int = 0
    lost_attempts: int = 0  # those whose job Spark gave up
    learned: bool = False
    # of the attempt under way
    attempt: A.Attempt | None = None
    items: tuple[WorkItem, ...] = ()
    results: list[TaskResult] = field(default_factory=list)
    stats: TaskStats = field(default_factory=lambda: TaskStats(-1))
    ddls: tuple[DdlEvent, ...] = ()
    unsent: list[DdlEvent] = field(default_factory=list)
    # of the newest attempt that failed
    error: TidemillError | None = None
    failed_at: float = 0.0

    def __str__(self) -> str:
        return f"({self.from_ts}, {self.to_ts}]"

    @property
    def interval(self) -> tuple[int, int, Ranges]:
        return self.from_ts, self.to_ts, self.ranges

    @property
    def moves(self) -> bool:
        """Whether all log partitions get further, and not only some."""
        return self.to_ts > self.from_ts or not self.ranges
