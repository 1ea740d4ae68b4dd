"""A changefeed in a process of its own: `python -m tidemill.changefeed.runner`, with `Options`. `tidemill run` starts and supervises it.

Spark starts beside the first batches. The process ends with 0 after SIGTERM or SIGINT (at the end of the batch) and when the target ts is
reached. After an error it prints `Error CODE: …` and ends with 1.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tidemill import logs
from tidemill.changefeed.changefeed import Changefeed, folder_of
from tidemill.changefeed.feed_folder import FeedFolder
from tidemill.changefeed.feed_status import described
from tidemill.changefeed.runner_options import Options
from tidemill.changefeed.runtime import Runtime
from tidemill.changefeed.states import State
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.retry import TELL_EVERY_S
from tidemill.delivery.batch import JobRunner
from tidemill.delivery.clock import Clock
from tidemill.delivery.inputs.log_heads import heads_of
from tidemill.delivery.loop import Heads
from tidemill.delivery.machine.actions import Report
from tidemill.errors import LogUnavailable, TidemillError
from tidemill.process import lifeline, orders
from tidemill.process.ending import reported
from tidemill.process.places import is_in_process
from tidemill.spark.background import BackgroundSpark
from tidemill.spark.local import EarlyRunner
from tidemill.traces import process as traces

log = logging.getLogger("tidemill.changefeed.runner")  # as a program its __name__ is another


class OwnLog:
    """The log, opened by this changefeed alone. `runtime.FeedLog`."""

    keep_every_s = 2.0

    def __init__(self, location: str, stop: threading.Event) -> None:
        self._location, self._stop = location, stop
        self._warned_at = float("-inf")

    def open(self) -> LogReader:
        return LogReader(self._location)

    def reach(self, reader: LogReader, ts: int) -> None:
        """Nothing to wait for: a changefeed begins at a ts that the log has reached."""

    def heads(self, stack: ExitStack, reader: LogReader, clock: Clock) -> Heads:
        return heads_of(stack, reader, clock, self._stop)

    def away(self, error: LogUnavailable) -> None:
        if time.monotonic() - self._warned_at >= TELL_EVERY_S:
            self._warned_at = time.monotonic()
            log.warning("the log's storage is away and is retried until it answers: %s", error.message)


class OwnSpark:
    """A Spark session of this process, which starts in the background. `runtime.FeedSpark`."""

    def __init__(self, options: Options, log_file: Path, stop: threading.Event) -> None:
        self._options, self._log_file, self._stop = options, log_file, stop
        self._spark = BackgroundSpark(self._start)

    def _start(self) -> Any:
        from tidemill.spark.session import start_context

        options = self._options
        return start_context(self._log_file, master=options.master, name=f"tidemill {options.changefeed}", user=options.spark_conf)

    def runner(self, stack: ExitStack, on_failure: Callable[[TidemillError], None]) -> JobRunner:
        options = self._options
        log.info("starting Spark")

        def opened(context: Any) -> JobRunner:
            from tidemill.spark.jobs import SparkRunner
            from tidemill.spark.resident import ResidentRunner

            if options.config.low_latency and is_in_process(options.master):
                resident = ResidentRunner(context, f"tidemill-{options.changefeed}")
                stack.callback(resident.close)
                return resident
            return SparkRunner(context, f"tidemill-{options.changefeed}", stop=self._stop, tell=on_failure)

        self._spark.start()
        stack.callback(self._spark.stop)
        return EarlyRunner(self._spark, opened, self._stop)

    def has_begun(self, rows: int) -> bool:
        """Rows that were delivered while Spark is starting count: then an error of its start, such as a process that was killed, does not
        end the run."""
        return self._spark.is_up or rows > 0

    def check(self) -> None:
        self._spark.check()


class StateWriter:
    """Writes the state into the changefeed's folder. `runtime.Listener`."""

    def __init__(self, folder: FeedFolder) -> None:
        self._folder = folder

    def begun(self) -> None:
        """Nothing: delivery.json says so."""

    def delivered(self, report: Report) -> None:
        """Nothing: delivery.json says so."""

    def passed(self, report: Report) -> None:
        """Nothing: delivery.json says so."""

    def failed(self, error: TidemillError) -> None:
        """Nothing: delivery.json says so."""

    def ended(self, state: State, error: TidemillError | None) -> None:
        self._folder.save_state(state, described(error) if error is not None else None)


def changefeed_of(options: Options, stop: threading.Event) -> Changefeed:
    """Return the changefeed of this process."""
    folder = folder_of(options)
    runtime = Runtime(OwnLog(options.log, stop), OwnSpark(options, folder.spark_log, stop), StateWriter(folder))
    return Changefeed(options, folder, runtime, stop)


def main() -> None:
    """Entry point."""
    with reported():
        options = orders.take(Options)
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        lifeline.hold()
        logs.setup(options.log_level, options.log_file, part="changefeed")
        traces.begin("changefeed")
        changefeed_of(options, stop).run()


if __name__ == "__main__":
    main()
