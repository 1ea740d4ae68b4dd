"""What the driver hands to a task and what a task gives back: small, immutable, picklable."""

from __future__ import annotations

from dataclasses import dataclass

NAMED_ROWS = 5
"""How many rows a warning names at most."""


@dataclass(frozen=True, slots=True)
class WorkItem:
    """Deliver the rows of (from_ts, to_ts] of some log partitions that go to some targets.

    In a batch exactly one item handles a pair (logical table, target): that keeps its order.
    """

    feed: str
    batch: int
    epoch: int  # grows with every attempt to run a batch; an older epoch must not write
    number: int  # of this item in the batch
    from_ts: int
    to_ts: int
    log_partitions: tuple[int, ...]
    chains: tuple[tuple[str, ...], ...]  # files; each chain is sorted
    share: int  # targets t with t % shares == share are this item's
    shares: int
    pack: str  # the pack that is valid in (from_ts, to_ts]: its path, or its name where Spark sends it along with the job
    sink: str  # sink URI, secrets included
    fence: str  # path or URL of the file with the epoch in force, in the log's storage
    small: bool = False  # this item is the whole batch, and it has few rows
    items: int = 1  # of the batch
    ranges: tuple[tuple[int, int], ...] = ()  # the interval of each chain, where log partitions are not equally far

    def __str__(self) -> str:
        return f"item {self.number} of batch {self.batch} of {self.feed}, ({self.from_ts}, {self.to_ts}]"


@dataclass(slots=True)
class TaskStats:
    """What a task did. `acked` must equal `messages`. Times are nanoseconds of wall time; `cpu_ns` is processor time."""

    number: int
    worker: int = 0  # pid
    rows_read: int = 0  # seen while merging
    rows: int = 0  # delivered
    messages: int = 0
    acked: int = 0
    bytes_out: int = 0
    skipped_rows: int = 0  # left out by name
    corrupted_rows: int = 0  # sent although they do not fit their checksum
    corrupted: tuple[str, ...] = ()  # some of them by name
    missed_rows: int = 0  # to be changed or deleted, but not there
    missed: tuple[str, ...] = ()  # some of them by name
    slow_rows: int = 0  # encoded by the plain reference instead of a kernel
    route_ns: int = 0
    encode_ns: int = 0
    deliver_ns: int = 0  # without `flush_ns`
    flush_ns: int = 0  # until all messages were acknowledged
    cpu_ns: int = 0
    began_ns: int = 0  # Unix time in nanoseconds, by the clock of the worker's machine


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """A TidemillError that ended a task. It is returned and not raised, so that Spark does not stop the other tasks."""

    number: int
    code: str
    message: str
    retryable: bool


TaskResult = TaskStats | TaskFailure


def total(stats: list[TaskStats]) -> TaskStats:
    """The sums of a batch."""
    whole = TaskStats(-1)
    for one in stats:
        for name in TaskStats.__slots__:
            if name not in ("number", "worker", "began_ns"):
                setattr(whole, name, getattr(whole, name) + getattr(one, name))
    return whole
