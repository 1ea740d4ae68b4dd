"""What the batch machine asks its driver to do.

Each step of the machine gives some *notes*, which nobody answers and which do not fail, and at most one *request*, always the last. The
driver answers a request with the event that its text names, or with Failed.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tidemill.delivery.machine.events import BootstrapMessage
from tidemill.delivery.position import Plan, Position, Ranges, end_of
from tidemill.delivery.work_item import TaskStats, WorkItem
from tidemill.errors import TidemillError
from tidemill.tidb.schema.events import DdlEvent


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to deliver a batch (not Spark's attempt of a task). Each has an epoch of its own."""

    batch: int
    epoch: int
    from_ts: int
    to_ts: int
    ranges: Ranges = ()


@dataclass(frozen=True, slots=True)
class Report:
    """A batch that succeeded."""

    batch: int
    from_ts: int
    to_ts: int
    epoch: int
    attempts: int
    stats: TaskStats
    ddls: tuple[DdlEvent, ...]
    ranges: Ranges = ()

    @property
    def end(self) -> Position:
        """How far the changefeed is with it."""
        return end_of(self.to_ts, self.ranges)


# ---- requests


@dataclass(frozen=True, slots=True)
class LearnSchemas:
    """Follow the schema history up to `to_ts` and find the barriers in (from_ts, to_ts] → SchemasLearned."""

    from_ts: int
    to_ts: int


@dataclass(frozen=True, slots=True)
class ListBootstraps:
    """Find the tables that exist at `ts`, and the messages that describe them → BootstrapsListed."""

    ts: int


@dataclass(frozen=True, slots=True)
class TakeEpoch:
    """Begin the next epoch, durably, for an attempt at a batch → EpochTaken. None: no checkpoint is kept."""

    plan: Plan | None


@dataclass(frozen=True, slots=True)
class SendBootstraps:
    """Send these and wait until they are acknowledged → BootstrapsSent."""

    attempt: Attempt
    messages: tuple[BootstrapMessage, ...]


@dataclass(frozen=True, slots=True)
class CheckTopics:
    """Ask the sink for its topics again; make those that are missing → TopicsChecked."""


@dataclass(frozen=True, slots=True)
class BeginAttempt:
    """Let the sink get ready for the rows → AttemptBegun."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class PlanRows:
    """Divide the rows of the interval among work items, for the executors that are there now → RowsPlanned."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class RunJob:
    """Run the items as one Spark job → ItemReported of each, then JobEnded."""

    items: tuple[WorkItem, ...]


@dataclass(frozen=True, slots=True)
class CheckFence:
    """Look whether another driver has taken the changefeed over → FenceHeld."""


@dataclass(frozen=True, slots=True)
class ListDdls:
    """Find the DDLs of (from_ts, to_ts] that the changefeed delivers → DdlsListed."""

    from_ts: int
    to_ts: int


@dataclass(frozen=True, slots=True)
class SendDdl:
    """Send a DDL to the partitions of its topic → DdlSent."""

    ddl: DdlEvent


@dataclass(frozen=True, slots=True)
class SendResolved:
    """Send the resolved event to every partition of every topic → ResolvedSent."""

    ts: int


@dataclass(frozen=True, slots=True)
class FinishAttempt:
    """Wait until the sink has everything of the attempt → AttemptFinished."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class AnnounceDdls:
    """Say which DDLs are delivered, before the rows past them → DdlsAnnounced."""

    ddls: tuple[DdlEvent, ...]


@dataclass(frozen=True, slots=True)
class SaveCheckpoint:
    """Make the end of a batch, or of passed intervals, durable → CheckpointSaved."""

    report: Report


@dataclass(frozen=True, slots=True)
class EndEpoch:
    """Begin the next epoch, durably, so that what is left of a failed attempt stops now → EpochEnded."""

    plan: Plan | None


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait so long → Waited, or StopAsked as soon as a stop is asked for."""

    seconds: float


# ---- notes


@dataclass(frozen=True, slots=True)
class DiscardAttempt:
    """The attempt has failed: the sink drops what it left."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class RefreshLog:
    """Forget what is remembered of the log's files: one of them is gone."""


@dataclass(frozen=True, slots=True)
class NoteFailure:
    """An attempt failed and another one follows: the changefeed's state is `warning`."""

    error: TidemillError


@dataclass(frozen=True, slots=True)
class ReportRows:
    """Warn of rows with which something is wrong and that were delivered nevertheless, see `RowWarnings`."""

    stats: TaskStats


@dataclass(frozen=True, slots=True)
class Warn:
    """Write a warning to the process's log."""

    text: str


@dataclass(frozen=True, slots=True)
class Debug:
    """Write a line for developers to the process's log."""

    text: str


@dataclass(frozen=True, slots=True)
class EndBatch:
    """The batch is over. None: it was delivered before."""

    report: Report | None


class Over(enum.Enum):
    """Why no further batch begins."""

    TARGET_REACHED = "the target ts is reached"
    STOPPED = "a stop was asked for"


@dataclass(frozen=True, slots=True)
class End:
    """No further batch begins."""

    why: Over


@dataclass(frozen=True, slots=True)
class Fail:
    """The changefeed's process ends with this error. `cause`: the error that this one tells of, or came after."""

    error: TidemillError
    cause: TidemillError | None = None


Request = (
    LearnSchemas | ListBootstraps | TakeEpoch | SendBootstraps | CheckTopics | BeginAttempt | PlanRows | RunJob | CheckFence | ListDdls
    | SendDdl | SendResolved | FinishAttempt | AnnounceDdls | SaveCheckpoint | EndEpoch | Wait
)  # fmt: skip
Note = DiscardAttempt | RefreshLog | NoteFailure | ReportRows | Warn | Debug | EndBatch | End | Fail
Action = Request | Note
