"""One changefeed in the delivery host: a `Changefeed` in a thread of its own, on the log and the Spark session of the host."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from tidemill import logs
from tidemill.changefeed.changefeed import Changefeed, folder_of
from tidemill.changefeed.feed_status import described
from tidemill.changefeed.runner_options import Options
from tidemill.changefeed.runtime import FeedSpark, Runtime
from tidemill.changefeed.states import State
from tidemill.changelog.reader import LogReader
from tidemill.delivery.batch import JobRunner
from tidemill.delivery.clock import Clock
from tidemill.delivery.loop import Heads
from tidemill.delivery.machine.actions import Report
from tidemill.delivery.machine.failures import Stopped
from tidemill.errors import LogUnavailable, SystemFailed, TidemillError, UnexpectedError
from tidemill.server.host.messages import Figures, report
from tidemill.server.host.shared_log import SharedLog, Waiter
from tidemill.server.host.shared_spark import PoolRunner, SharedSpark

log = logging.getLogger(__name__)

WAITED_S = 0.5
SAVED_EVERY_S = 10.0
"""How often delivery.json is written while all is well. It is for people and for metrics: the server has the figures."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What the changefeeds of a host share."""

    log: Callable[[], SharedLog]
    spark: SharedSpark
    say: Callable[[bytes], None]
    """Takes a report for the server."""


class HostLog:
    """The log that all changefeeds of the host read. `runtime.FeedLog`."""

    keep_every_s = float("inf")

    def __init__(self, open_log: Callable[[], SharedLog], stop: threading.Event) -> None:
        self._open, self._stop = open_log, stop
        self._waiter: Waiter | None = None

    def open(self) -> LogReader:
        log = self._open()
        log.look(fresh=True)
        return log

    def reach(self, reader: LogReader, ts: int) -> None:
        """Wait: a changefeed may begin at the cluster's present, where the log is a moment later."""
        with ExitStack() as stack:
            waiter = self._wait_on(stack, reader)
            while reader.resolved_ts() < ts:
                waiter.wait(ts, WAITED_S)
                if self._stop.is_set():
                    raise Stopped("stopped while waiting for the log")

    def heads(self, stack: ExitStack, reader: LogReader, clock: Clock) -> Heads:
        return self._wait_on(stack, reader)

    def away(self, error: LogUnavailable) -> None:
        """Nothing: the host logs it once for all changefeeds."""

    def wake(self) -> None:
        """End a wait, because the changefeed is to stop."""
        if self._waiter is not None:
            self._waiter.wake()

    def _wait_on(self, stack: ExitStack, reader: LogReader) -> Waiter:
        assert isinstance(reader, SharedLog)
        waiter = self._waiter = Waiter(reader)
        reader.waits(waiter)
        stack.callback(reader.leaves, waiter)
        return waiter


class HostSpark:
    """The changefeed's pool in the Spark session of the host. `runtime.FeedSpark`."""

    def __init__(self, spark: SharedSpark, feed: str, stop: threading.Event) -> None:
        self._spark, self._feed, self._stop = spark, feed, stop
        self._runner: PoolRunner | None = None

    def runner(self, stack: ExitStack, on_failure: Callable[[TidemillError], None]) -> JobRunner:
        self._runner = PoolRunner(self._spark, self._feed, self._stop, on_failure)
        return self._runner

    def has_begun(self, rows: int) -> bool:
        """Always: Spark's start is the host's."""
        return True

    def check(self) -> None:
        self._spark.check_start()

    def in_trouble(self, failed: bool) -> None:
        """Whether the last attempt failed: then one task runs at a time."""
        if self._runner is not None:
            self._runner.in_trouble = failed


class ServerReport:
    """Reports to the server, which keeps the state. `runtime.Listener`."""

    def __init__(self, feed: str, run: int, spark: HostSpark, say: Callable[[bytes], None]) -> None:
        self._feed, self._run, self._spark, self._line = feed, run, spark, say
        self.moved = False
        """The figures changed since they were last read."""
        self.rows_at = 0.0
        self.how = "stopped"

    def begun(self) -> None:
        self.say("begun")

    def delivered(self, report: Report) -> None:
        self._spark.in_trouble(False)
        if report.stats.rows:
            self.rows_at = time.time()
        self.moved = True

    def passed(self, report: Report) -> None:
        self.moved = True

    def failed(self, error: TidemillError) -> None:
        self._spark.in_trouble(True)
        self.say("erred", **described(error))

    def ended(self, state: State, error: TidemillError | None) -> None:
        """Remember it for the report of the end."""
        if state is State.FINISHED:
            self.how = "reached"

    def say(self, event: str, **more: object) -> None:
        """Send a report."""
        self._line(report(event, feed=self._feed, run=self._run, **more))


class HostedFeed:
    """Runs one changefeed until it is stopped, its target is reached, or an error ends it."""

    def __init__(self, options: Options, run: int, shared: Shared, spark: FeedSpark | None = None) -> None:
        """`spark`: where its tasks run, if not in the host's session."""
        self.feed, self.number, self._stop = options.changefeed, run, threading.Event()
        self._log, pool = HostLog(shared.log, self._stop), HostSpark(shared.spark, self.feed, self._stop)
        self._report = ServerReport(self.feed, run, pool, shared.say)
        runtime = Runtime(self._log, spark or pool, self._report, status_every_s=SAVED_EVERY_S)
        self.changefeed = Changefeed(options, folder_of(options), runtime, self._stop)
        self._thread = threading.Thread(target=self._main, name=f"feed {self.feed}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask for its end after the batch."""
        self._stop.set()
        self._log.wake()

    def join(self, seconds: float) -> bool:
        """Wait for its end. Return whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def figures(self) -> Figures | None:
        """Return how far it is, or None if it has not moved since the last call."""
        if not self._report.moved:
            return None
        self._report.moved = False
        s = self.changefeed.progress.status
        counts = s.batches, s.rows, s.messages, s.bytes, s.ddls, s.skipped_rows
        return Figures(self.number, s.checkpoint_ts, s.resolved_ts, *counts, s.moved_at, self._report.rows_at, dict(s.last_batch))

    def _main(self) -> None:
        logs.name_thread(self.feed)
        failure: TidemillError | None = None
        try:
            self.changefeed.run()
        except TidemillError as error:
            failure = error
        except OSError as error:
            failure = SystemFailed.of(error)
        except BaseException as error:  # a fault of Tidemill: the server must not take the changefeed for one that runs
            self._say_ended(UnexpectedError(f"{type(error).__name__}: {error}"))
            raise
        self._say_ended(failure)

    def _say_ended(self, failure: TidemillError | None) -> None:
        ended: dict[str, object] = {"how": self._report.how}
        if failure is not None:
            ended = {
                "how": "failed",
                **described(failure),
                "retryable": failure.retryable,
                "trouble_since": self.changefeed.progress.status.warning_since,
            }
        last = self.figures()
        if last is not None:
            ended["checkpoint_ts"] = last.checkpoint_ts
        self._report.say("ended", **ended)
