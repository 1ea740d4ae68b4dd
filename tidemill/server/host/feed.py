"""One changefeed in the delivery host, in a thread of its own: as `changefeed.runner` runs it in a process of its own, but with the log and
the Spark session of the host.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from tidemill import logs
from tidemill.changefeed.feed_status import Status
from tidemill.changefeed.runner import Batches, Runner
from tidemill.changefeed.runner_options import Options
from tidemill.changefeed.states import Event
from tidemill.changelog.reader import LogReader
from tidemill.delivery.batch import JobRunner
from tidemill.delivery.loop import Passing, deliver
from tidemill.delivery.machine.actions import Report
from tidemill.delivery.machine.failures import Stopped
from tidemill.delivery.position import SavedPosition
from tidemill.errors import SystemFailed, TidemillError, UnexpectedError, redact
from tidemill.server.host.messages import Figures, report
from tidemill.server.host.shared_log import SharedLog, Waiter
from tidemill.server.host.shared_spark import PoolRunner, SharedSpark

log = logging.getLogger(__name__)

WAITED_S = 0.5
SAVED_EVERY_S = 10.0
"""How often delivery.json is written while all is well."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What the changefeeds of a host share."""

    log: Callable[[], SharedLog]
    spark: SharedSpark
    say: Callable[[bytes], None]
    """Takes a report for the server."""


class HostedFeed(Runner):
    """Runs one changefeed until it is stopped, its target is reached, or an error ends it."""

    def __init__(self, options: Options, run: int, shared: Shared) -> None:
        super().__init__(options, threading.Event())
        self.feed, self.number, self._shared = options.changefeed, run, shared
        self._waiter: Waiter | None = None
        self._runner: PoolRunner | None = None
        self._saved_at = 0.0
        self._unsaved = False
        self._moved = False
        self._rows_at = 0.0
        self._ended: dict[str, object] = {"how": "stopped"}
        self._thread = threading.Thread(target=self._main, name=f"feed {self.feed}", daemon=True)

    # ---- for the host

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask for its end after the batch."""
        self._stop.set()
        if self._waiter is not None:
            self._waiter.wake()

    def join(self, seconds: float) -> bool:
        """Wait for its end. Return whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def figures(self) -> Figures | None:
        """How far it is, if it has moved since the last call."""
        if not self._moved:
            return None
        self._moved = False
        s = self._status
        counts = s.batches, s.rows, s.messages, s.bytes, s.ddls, s.skipped_rows
        return Figures(self.number, s.checkpoint_ts, s.resolved_ts, *counts, s.moved_at, self._rows_at, dict(s.last_batch))

    # ---- the thread

    def _main(self) -> None:
        logs.name_thread(self.feed)
        failure: TidemillError | None = None
        try:
            self.run()
        except TidemillError as error:
            failure = error
        except OSError as error:
            failure = SystemFailed.of(error)
        except BaseException as error:  # a fault of Tidemill: the server must not take the changefeed for one that runs
            self._say_ended(UnexpectedError(f"{type(error).__name__}: {error}"))
            raise
        self._say_ended(failure)

    def _say_ended(self, failure: TidemillError | None) -> None:
        if failure is not None:
            self._ended = {
                "how": "failed",
                "code": failure.code,
                "message": redact(str(failure)),
                "retryable": failure.retryable,
                "trouble_since": self._status.warning_since,
            }
        last = self.figures()
        if last is not None:
            self._ended |= {"checkpoint_ts": last.checkpoint_ts}
        self._say("ended", **self._ended)

    def _say(self, word: str, **more: object) -> None:
        self._shared.say(report(word, feed=self.feed, run=self.number, **more))

    # ---- what differs from a process of its own

    def _open_log(self) -> LogReader:
        return self._shared.log()

    def _await_log(self, reader: LogReader, at: int) -> None:
        """A changefeed may begin at the cluster's present, where the log is a moment later."""
        assert isinstance(reader, SharedLog)
        waiter = self._waiter = Waiter(reader)
        reader.waits(waiter)
        try:
            while self._retry.call(reader.resolved_ts) < at:
                waiter.wait(at, WAITED_S)
                if self._stop.is_set():
                    raise Stopped("stopped while waiting for the log")
        finally:
            reader.leaves(waiter)

    def _job_runner(self, stack: ExitStack) -> JobRunner:
        self._runner = PoolRunner(self._shared.spark, self.feed, self._stop, self._note_failure)
        return self._runner

    def _run_batches(self, batches: Batches) -> bool:
        assert isinstance(batches.reader, SharedLog)
        waiter = self._waiter = Waiter(batches.reader)
        batches.reader.waits(waiter)
        try:
            self._note_begin()
            return deliver(
                *(batches.driver, self._clock(batches), waiter, batches.begin),
                target_ts=self._options.target_ts,
                save=self._save,
                passing=Passing(self._passed),
                on_away=self._note_failure,
                check=self._check_pool,
            )
        finally:
            batches.reader.leaves(waiter)

    def _check_pool(self) -> None:
        self._shared.spark.check_start()
        self._tell_if_due()

    def _save(self, report: Report) -> SavedPosition:
        saved = super()._save(report)
        if self._runner is not None:
            self._runner.in_trouble = False
        if report.stats.rows:
            self._rows_at = time.time()
        self._moved = True
        return saved

    def _passed(self, report: Report) -> None:
        """An empty interval: the server learns of it; what is on disk follows with the next batch."""
        self._note_advance(report)
        self._moved = True
        if self._unsaved:
            self._save_status()

    def _note_begin(self) -> None:
        super()._note_begin()
        self._say("begun")

    def _note_failure(self, error: TidemillError) -> None:
        super()._note_failure(error)
        if self._runner is not None:
            self._runner.in_trouble = True
        self._say("erred", code=error.code, message=redact(str(error)))

    def _note_end(self, event: Event, error: TidemillError | None = None) -> None:
        """The server writes the state down."""
        if event is Event.TARGET_REACHED:
            self._ended = {"how": "reached"}

    def _save_status(self) -> None:
        """delivery.json is for people and for metrics: the server has the figures. A changefeed that was removed while its batch did not
        end has no folder any more, and gets none."""
        if not self._folder.path.is_dir():
            return
        status: Status = self._status
        now = time.monotonic()
        self._unsaved = status.error is None and status.running and now - self._saved_at < SAVED_EVERY_S
        if self._unsaved:
            return
        self._saved_at = now
        super()._save_status()
