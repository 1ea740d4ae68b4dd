"""What the batch machine is told. Each event but the first and the last two answers the action that its text names.

Times are seconds of the driver's clock, which may begin anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemill.delivery.position import Position, SavedPosition
from tidemill.delivery.work_item import TaskResult, WorkItem
from tidemill.errors import TidemillError
from tidemill.tidb.schema.events import DdlEvent

BootstrapMessage = tuple[str, bytes | None, bytes | None, Sequence[int]]
"""Topic, key, value, partitions."""


@dataclass(frozen=True, slots=True)
class BatchBegun:
    """A batch is to be delivered: what lies between two positions."""

    batch: int
    begin: Position
    end: Position
    now: float


@dataclass(frozen=True, slots=True)
class SchemasLearned:
    """LearnSchemas is done; `barriers` are the ts in the interval that a batch may not pass."""

    barriers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class BootstrapsListed:
    """ListBootstraps is done."""

    messages: tuple[BootstrapMessage, ...] = ()


@dataclass(frozen=True, slots=True)
class EpochTaken:
    """TakeEpoch is done, durably: tasks of all epochs before stop."""

    epoch: int


@dataclass(frozen=True, slots=True)
class BootstrapsSent:
    """SendBootstraps is done, acknowledged."""


@dataclass(frozen=True, slots=True)
class TopicsChecked:
    """CheckTopics is done; topics that were missing are made. `changed`: they differ from what was known of them."""

    changed: bool = False


@dataclass(frozen=True, slots=True)
class AttemptBegun:
    """BeginAttempt is done: the sink is ready for the rows."""


@dataclass(frozen=True, slots=True)
class RowsPlanned:
    """PlanRows is done. No items: the interval has no rows."""

    items: tuple[WorkItem, ...] = ()


@dataclass(frozen=True, slots=True)
class ItemReported:
    """A task of RunJob has answered: with its statistics, or with the error that ended it."""

    result: TaskResult


@dataclass(frozen=True, slots=True)
class JobEnded:
    """RunJob is done: every task that answers has answered."""

    now: float


@dataclass(frozen=True, slots=True)
class FenceHeld:
    """CheckFence is done: the epoch is still in force."""


@dataclass(frozen=True, slots=True)
class DdlsListed:
    """ListDdls is done. The DDLs are in the order in which they are delivered."""

    ddls: tuple[DdlEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class DdlSent:
    """SendDdl is done."""


@dataclass(frozen=True, slots=True)
class ResolvedSent:
    """SendResolved is done."""


@dataclass(frozen=True, slots=True)
class AttemptFinished:
    """FinishAttempt is done: everything of the batch is acknowledged."""


@dataclass(frozen=True, slots=True)
class DdlsAnnounced:
    """AnnounceDdls is done."""


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """SaveCheckpoint is done, durably."""

    at: SavedPosition


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """EndEpoch is done: nothing of the failed attempt goes on."""


@dataclass(frozen=True, slots=True)
class Waited:
    """Wait is over."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The newest action failed."""

    error: TidemillError
    now: float


@dataclass(frozen=True, slots=True)
class StopAsked:
    """A person, or the supervisor, asks the changefeed to stop. It may come at any time during a batch."""


Event = (
    BatchBegun | SchemasLearned | BootstrapsListed | EpochTaken | BootstrapsSent | TopicsChecked | AttemptBegun | RowsPlanned | ItemReported
    | JobEnded | FenceHeld | DdlsListed | DdlSent | ResolvedSent | AttemptFinished | DdlsAnnounced | CheckpointSaved | EpochEnded | Waited
    | Failed | StopAsked
)  # fmt: skip
