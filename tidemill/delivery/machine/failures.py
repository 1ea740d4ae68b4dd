"""What follows from each way in which an attempt can fail: a table, without exceptions to it elsewhere.

    kind              what follows                                                      where it comes from
    storage away      wait until it is back                                             of the log, of the changefeed's state; a full disk
    segment gone      read the log's list of files again, try again                     compaction or retention took a file
    job lost          try again after a grace, `lost_attempts` times                    a worker died, memory ran out, a bug
    executor lost     try again after a grace                                           Spark ran a task again on another executor
    message refused   ask for the topics: try again if they changed, else give up       a topic's limit was lowered
    fenced            give up                                                           another driver has taken the changefeed over
    transient         try again                                                         a sink, a registry, a topic that is away
    permanent         give up                                                           an error that a retry cannot mend

"Try again" ends when the retry policy says so (`retry.py`). Waiting for storage does not count against it. Every failure ends the epoch
first: nothing of the failed attempt goes on beside the next one.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tidemill.delivery.work_item import TaskFailure
from tidemill.errors import DiskLow, Fenced, LogUnavailable, MessageRefused, SegmentGone, TidemillError, made


class JobLost(TidemillError):
    """Spark gave up a job for a reason that no task reported: a worker died, memory ran out, a bug."""

    code = "TM:ErrJobLost"
    retryable = True


class ExecutorLost(TidemillError):
    """Spark ran a task again by itself because its executor went away. Such a second attempt delivers nothing: the batch is run again."""

    code = "TM:ErrExecutorLost"
    retryable = True


class Stopped(TidemillError):
    """A stop was asked for while a batch waited for its next attempt. The batch is run again after the next start."""

    code = "TM:ErrStopped"


class Kind(enum.Enum):
    """How an attempt failed."""

    STORAGE_AWAY = "storage away"
    SEGMENT_GONE = "segment gone"
    JOB_LOST = "job lost"
    EXECUTOR_LOST = "executor lost"
    MESSAGE_REFUSED = "message refused"
    FENCED = "fenced"
    TRANSIENT = "transient"
    PERMANENT = "permanent"


class Then(enum.Enum):
    """What follows a failure."""

    WAIT = "try again until it is back"
    RETRY = "try again as long as the policy says"
    CHECK_TOPICS = "RETRY if the topics differ from before, else GIVE_UP"
    GIVE_UP = "end the changefeed's process with the error"


@dataclass(frozen=True, slots=True)
class Reaction:
    """`grace`: tasks of the failed job may go on for a moment, so the next attempt waits for that. `limited`: this may happen
    `lost_attempts` times, because more attempts do not help if the cause lies in the rows. `refresh`: list the log's files again."""

    then: Then
    grace: bool = False
    limited: bool = False
    refresh: bool = False


REACTIONS: Mapping[Kind, Reaction] = MappingProxyType(
    {
        Kind.STORAGE_AWAY: Reaction(Then.WAIT),
        Kind.SEGMENT_GONE: Reaction(Then.RETRY, refresh=True),
        Kind.JOB_LOST: Reaction(Then.RETRY, grace=True, limited=True),
        Kind.EXECUTOR_LOST: Reaction(Then.RETRY, grace=True),
        Kind.MESSAGE_REFUSED: Reaction(Then.CHECK_TOPICS),
        Kind.FENCED: Reaction(Then.GIVE_UP),
        Kind.TRANSIENT: Reaction(Then.RETRY),
        Kind.PERMANENT: Reaction(Then.GIVE_UP),
    }
)

_BY_CLASS: tuple[tuple[type[TidemillError], Kind], ...] = (
    (LogUnavailable, Kind.STORAGE_AWAY),
    (DiskLow, Kind.STORAGE_AWAY),
    (SegmentGone, Kind.SEGMENT_GONE),
    (JobLost, Kind.JOB_LOST),
    (ExecutorLost, Kind.EXECUTOR_LOST),
    (MessageRefused, Kind.MESSAGE_REFUSED),
    (Fenced, Kind.FENCED),
)


def kind_of(error: TidemillError) -> Kind:
    """How an attempt failed that this error ended."""
    for one, kind in _BY_CLASS:
        if isinstance(error, one):
            return kind
    return Kind.TRANSIENT if error.retryable else Kind.PERMANENT


def error_of(failure: TaskFailure) -> TidemillError:
    """A task's error as it was raised there."""
    return made(failure.code, failure.message, retryable=failure.retryable)
