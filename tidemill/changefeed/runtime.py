"""What the process that a changefeed runs in gives it: the log, Spark, and somebody who hears how it goes.

`changefeed.runner` is a process of one changefeed, `server.host` one of many. A `Changefeed` is the same in both.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from tidemill.changefeed.states import State
from tidemill.changelog.reader import LogReader
from tidemill.delivery.batch import JobRunner
from tidemill.delivery.clock import Clock
from tidemill.delivery.loop import Heads
from tidemill.delivery.machine.actions import Report
from tidemill.errors import LogUnavailable, TidemillError


class FeedLog(Protocol):
    """The log that a changefeed reads."""

    keep_every_s: float
    """Seconds after which the end of empty intervals is made durable."""

    def open(self) -> LogReader:
        """Return the log. Raises LogUnavailable, LogCorrupt."""

    def reach(self, reader: LogReader, ts: int) -> None:
        """Wait until the log's resolved ts is at `ts`. Raises Stopped, LogUnavailable."""

    def heads(self, stack: ExitStack, reader: LogReader, clock: Clock) -> Heads:
        """Return what waits for the log to grow, until `stack` ends."""

    def away(self, error: LogUnavailable) -> None:
        """The log's storage did not answer between two batches. It is asked again."""


class FeedSpark(Protocol):
    """Where the tasks of a changefeed's batches run."""

    def runner(self, stack: ExitStack, on_failure: Callable[[TidemillError], None]) -> JobRunner:
        """Return what runs the tasks, until `stack` ends. It may still be starting. `on_failure`: an executor failed, and its task is
        tried again."""

    def has_begun(self, rows: int) -> bool:
        """Whether the start went well, by Spark's state and the rows that were delivered."""

    def check(self) -> None:
        """Raise why tasks cannot be run: the error of Spark's start, JobLost."""


class Listener(Protocol):
    """Hears how a changefeed is doing. Calls of `failed` may come from any thread."""

    def begun(self) -> None:
        """The start went well."""

    def delivered(self, report: Report) -> None:
        """A batch is delivered, and its end is durable."""

    def passed(self, report: Report) -> None:
        """An empty interval is passed over. Its end is in memory only."""

    def failed(self, error: TidemillError) -> None:
        """An attempt failed, and is tried again."""

    def ended(self, state: State, error: TidemillError | None) -> None:
        """The changefeed is finished or failed. Raises LogUnavailable, DiskLow where that cannot be written down."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a changefeed is built on."""

    log: FeedLog
    spark: FeedSpark
    listener: Listener
    status_every_s: float = 0.0
    """How often delivery.json is written at most while all is well; 0: with every change."""
