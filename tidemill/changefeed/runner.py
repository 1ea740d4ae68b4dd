"""The driver of one changefeed, a process: `python -m tidemill.changefeed.runner …`. `tidemill run` starts and supervises it.

It waits for the log, checks the settings against those of the first start, and delivers one batch after the other while Spark starts beside
it. It ends with 0 after SIGTERM or SIGINT (at the end of the batch) and when the target ts is reached. After an error it prints
`Error CODE: …` and ends with 1.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from tidemill import logs, tso
from tidemill.changefeed.feed_folder import FeedFolder, FeedIdentity
from tidemill.changefeed.feed_status import Status
from tidemill.changefeed.runner_options import Options, options_of, parse_arguments
from tidemill.changefeed.states import RUNS, Event, State, after
from tidemill.changelog import feeds, log_format
from tidemill.changelog.files.bounds import is_covered, saved_begin, within
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader, log_exists
from tidemill.changelog.storage.outcomes import storage_errors
from tidemill.changelog.storage.retry import START_S, TELL_EVERY_S, StorageRetry
from tidemill.delivery.batch import BatchDriver, JobRunner
from tidemill.delivery.build import Delivery
from tidemill.delivery.clock import Clock
from tidemill.delivery.epoch_fence import Fence
from tidemill.delivery.inputs.log_heads import heads_of
from tidemill.delivery.inputs.table_router import Settings
from tidemill.delivery.loop import Passing, deliver
from tidemill.delivery.machine.actions import Report
from tidemill.delivery.machine.batch_machine import under_way
from tidemill.delivery.machine.failures import Stopped
from tidemill.delivery.machine.retry import Pauses, RetryPolicy
from tidemill.delivery.position import Position, SavedPosition
from tidemill.delivery.zone import parse_zone, zone_name
from tidemill.errors import (
    DiskLow,
    Fenced,
    FolderHeld,
    LogUnavailable,
    RegistryError,
    SchemaIncompatible,
    SinkUnavailable,
    StartTsOutOfLog,
    TidemillError,
    redact,
)
from tidemill.process import lifeline
from tidemill.process.ending import fail, fail_of_system
from tidemill.process.lifeline import SUPERVISED
from tidemill.process.places import is_in_process
from tidemill.protocols.all import spec_of
from tidemill.protocols.spec import load
from tidemill.sinks.base import HasBrokers
from tidemill.spark.background import BackgroundSpark
from tidemill.spark.local import EarlyRunner
from tidemill.tidb.schema.tracking.history import SchemaHistory
from tidemill.traces import process as traces

log = logging.getLogger("tidemill.changefeed.runner")  # as a program its __name__ is another

LOG_POLL_S = 0.25
TELL_S = 0.95
"""How often the status and the log's word of the checkpoint are written, at most, while one batch follows the other."""
KEEP_EVERY_S = 2.0
"""How often the checkpoint is made durable while nothing happens."""
LOG_INTERVAL_S = 30.0
"""How often progress is written to the process's log, at most."""


@dataclass(frozen=True, slots=True)
class Batches:
    """What a loop over batches needs, once everything is open."""

    driver: BatchDriver
    reader: LogReader
    history: SchemaHistory
    fence: Fence
    begin: SavedPosition
    trigger_ms: int
    sync_point_every_ms: int

    @property
    def first_end(self) -> Position | None:
        """Where the batch has to end that was under way."""
        return under_way(self.begin, self.fence.planned, self.fence.planned_ranges)


class Runner:
    """Runs one changefeed from its start to its end."""

    def __init__(self, options: Options, stop: threading.Event) -> None:
        self._options, self._stop = options, stop
        # Waits for the storage of the log and of the changefeed's state, and for room in it.
        self._retry = StorageRetry(stop, waits_for=(LogUnavailable, DiskLow))
        self._next_storage_warning_at = 0.0
        self._folder = FeedFolder(options.data_dir, options.changefeed, options.state, shared=options.shared, term=options.term)
        self._status = Status(options.changefeed, pid=os.getpid(), target_ts=options.target_ts)
        self._next_warning_at = 0.0
        self._registration: feeds.Registration | None = None
        self._saved: SavedPosition | None = None  # the checkpoint, once a batch of this process has moved it
        self._told_at = float("-inf")  # when batches were last told of
        self._untold = self._over = False
        self._timings: Callable[[], dict[str, Any]] = dict
        self._brokers: Callable[[], list[dict[str, Any]]] = list
        self._spark: BackgroundSpark | None = None

    def run(self) -> None:
        """Deliver until a stop is asked for or the target is reached. Raises the error that ended the changefeed."""
        self._folder.lock()
        with ExitStack() as stack:
            stack.callback(self._folder.unlock)
            try:
                with storage_errors(str(self._folder.path)):
                    self._deliver(stack)
            except Stopped:
                log.info("stopped")
            except TidemillError as error:
                if isinstance(error, LogUnavailable | DiskLow) and self._stop.is_set():
                    log.info("stopped while storage is away: %s", error.message)
                    return
                if isinstance(error, Fenced):
                    self._untold = False  # what the log is told is another driver's by now
                else:
                    self._status.errors += 1
                if not self._options.supervised:  # else the supervisor decides what follows
                    self._note_end(Event.REFUSED, error)
                raise
            finally:
                self._status.running = False
                if self._untold:
                    self._tell()
                else:
                    self._save_status()
                self._over = True

    def _deliver(self, stack: ExitStack) -> None:
        options, folder = self._options, self._folder
        settings = Settings(
            options.changefeed, options.config.sink_uri(options.sink_uri), options.config, parse_zone(options.tz), options.skip_rows
        )
        for rule in options.skip_rows:
            log.warning("--skip-row leaves out %s", rule)
        patient = self._retry.call
        self._wait_for_log()
        reader = patient(self._open_log)
        settings = settings.of_cluster(reader.identity.cluster_id)
        identity = patient(lambda: folder.settle(self._identity(reader, settings), start_given=options.start_ts is not None))
        is_first = patient(folder.checkpoint) is None
        begin = patient(lambda: folder.begin(identity))
        at = begin.saved_ts
        self._await_log(reader, at)
        patient(lambda: self._check_start(reader, at))
        patient(self._forget_refused)
        patient(lambda: self._begin_status(identity, at))
        name = f"{log_format.FENCES}/{log_format.feed_name(options.changefeed)}"
        fence = Fence(reader.storage, name, floor=patient(folder.last_epoch), term=options.term)
        patient(fence.check_term)  # a changefeed that a later leader has removed is not registered again
        of = feeds.SERVER if options.term else ""
        self._registration = patient(lambda: feeds.register(options.log, options.changefeed, saved_begin(reader, at), of=of))
        if options.target_ts is not None and at >= options.target_ts:
            self._note_end(Event.TARGET_REACHED)
            return
        delivery = Delivery.open(stack, settings, self._stop, schemas_file=folder.schemas)
        self._check_reachable(delivery, first=is_first)
        self._timings = delivery.timings.as_dict
        if isinstance(delivery.sink, HasBrokers):
            self._brokers = delivery.sink.brokers
        packs = delivery.packs(folder.packs, lenient=not is_first)
        history = patient(lambda: load_history(reader, from_ts=within(reader.start_ts, at), may_stop=True))
        source = delivery.source(reader, history, packs)
        if delivery.schemas is not None:
            packs.follow(history.snapshot(within(history.start_ts, at)))  # what the registry refuses is reported at the start
        epoch = patient(fence.take)
        patient(lambda: folder.claim(fence.driver, epoch))  # from here on no earlier driver can go on, wherever it runs
        begin = patient(lambda: folder.begin(identity))
        if settings.sink.protocol is not None:
            load(spec_of(settings.sink.protocol).encoder)  # if kernels are to be compiled, then here, where the log shows it
        log.info("delivery goes on from %s", tso.describe(begin.ts))
        runner = self._job_runner(stack)
        started_ts = options.upstream_ts or reader.resolved_ts()  # what is above the log's end was not delivered before
        retry = RetryPolicy(total_s=options.retry_s)
        driver = delivery.driver(
            *(packs, source, runner, fence, retry, self._note_failure),
            started_ts=started_ts,
            cluster_id=reader.identity.cluster_id,
        )
        trigger_ms = max(options.trigger_ms, settings.sink.flush_interval_ms)
        reached = self._run_batches(Batches(driver, reader, history, fence, begin, trigger_ms, settings.sink.sync_point_every_ms))
        log.info("%s; delivered up to %s", "the target is reached" if reached else "stopped", tso.describe(self._status.checkpoint_ts))
        if reached:
            self._note_end(Event.TARGET_REACHED)

    def _await_log(self, reader: LogReader, at: int) -> None:
        """Nothing to wait for: a changefeed begins at a ts that the log has reached."""

    def _open_log(self) -> LogReader:
        return LogReader(self._options.log)

    def _job_runner(self, stack: ExitStack) -> JobRunner:
        """What runs the batches' tasks: a Spark session of this process, which starts in the background."""
        options, log_file = self._options, self._folder.spark_log
        log.info("starting Spark")

        def begin() -> Any:
            from tidemill.spark.session import start_context

            return start_context(log_file, master=options.master, name=f"tidemill {options.changefeed}", user=options.spark_conf)

        def opened(context: Any) -> JobRunner:
            from tidemill.spark.jobs import SparkRunner
            from tidemill.spark.resident import ResidentRunner

            if options.config.low_latency and is_in_process(options.master):
                resident = ResidentRunner(context, f"tidemill-{options.changefeed}")
                stack.callback(resident.close)
                return resident
            return SparkRunner(context, f"tidemill-{options.changefeed}", stop=self._stop, tell=self._note_failure)

        spark = self._spark = BackgroundSpark(begin)
        spark.start()
        stack.callback(spark.stop)
        return EarlyRunner(spark, opened, self._stop)

    def _run_batches(self, batches: Batches) -> bool:
        """Deliver until the target is reached (True) or a stop is asked for (False)."""
        assert self._spark is not None
        clock = self._clock(batches)
        with ExitStack() as stack:
            heads = heads_of(stack, batches.reader, clock, self._stop)
            return deliver(
                *(batches.driver, clock, heads, batches.begin),
                target_ts=self._options.target_ts,
                save=self._save,
                passing=Passing(self._passed, KEEP_EVERY_S),
                on_away=self._note_away,
                check=self._check_spark,
            )

    def _check_spark(self) -> None:
        """Between two batches. The start went well once Spark is up, or rows were delivered while it was starting: then an error of its
        start, such as a process that was killed, does not end the run. Raises why Spark is not up, or JobLost."""
        assert self._spark is not None
        if not self._status.begun and (self._spark.is_up or self._status.rows):
            self._note_begin()
        self._spark.check()
        self._tell_if_due()

    def _clock(self, batches: Batches) -> Clock:
        return Clock(
            batches.reader,
            batches.history,
            batches.begin,
            target_ts=self._options.target_ts,
            trigger_s=batches.trigger_ms / 1000,
            first_end=batches.first_end,
            by_table=self._options.config.by_table,
            sync_point_every_ms=batches.sync_point_every_ms,
        )

    def _forget_refused(self) -> None:
        """If the schema registry had refused something, a person may have changed it there: forget what is remembered of the registry."""
        error = (self._folder.status() or {}).get("error") or {}
        if error.get("code") in (RegistryError.code, SchemaIncompatible.code):
            self._folder.schemas.unlink(missing_ok=True)

    def _check_reachable(self, delivery: Delivery, *, first: bool) -> None:
        """Find out at the start whether the sink refuses anything. If it is away, wait for it, but not at the very first start.
        Raises Stopped."""

        def meet() -> None:
            delivery.sink.ensure_topics({delivery.settings.sink.topic})
            if delivery.schemas is not None:
                delivery.schemas.meet()

        pauses = Pauses(RetryPolicy(total_s=self._options.retry_s))
        while True:
            try:
                meet()
                return
            except SinkUnavailable as error:
                pause = None if first else pauses.after_failure(time.monotonic())
                if pause is None:
                    raise
                log.warning("the sink is away and is tried again in %.0f s: %s", pause, error)
                self._note_failure(error)
            if self._stop.wait(pause):
                raise Stopped("stopped while waiting for the sink")

    def _wait_for_log(self) -> None:
        """The capture may not have made the log yet. The address of storage that this changefeed has never reached may be wrong, so
        it is not waited for without end. Raises Stopped, LogUnavailable."""
        told = False
        within_s = START_S if self._folder.identity() is None else None
        while not self._retry.call(lambda: log_exists(self._options.log), within_s):
            if not told:
                log.info("waiting for the log %s", redact(self._options.log))
                told = True
            if self._stop.wait(LOG_POLL_S):
                raise Stopped("stopped while waiting for the log")

    def _identity(self, reader: LogReader, settings: Settings) -> FeedIdentity:
        start_ts = reader.start_ts if self._options.start_ts is None else self._options.start_ts
        return FeedIdentity(
            changefeed=self._options.changefeed,
            cluster_id=reader.identity.cluster_id,
            log=redact(reader.location),
            sink=settings.sink.identity,
            config=settings.config.given(),
            tz=zone_name(settings.zone),
            start_ts=start_ts,
        )

    def _check_start(self, reader: LogReader, at: int) -> None:
        if not is_covered(reader, at):
            raise StartTsOutOfLog(
                f"changefeed {self._options.changefeed} needs changes from {tso.describe(at)} on; the log {redact(reader.location)} "
                f"holds {tso.describe(reader.start_ts)} to {tso.describe(reader.resolved_ts())}"
            )

    def _begin_status(self, identity: FeedIdentity, at: int) -> None:
        before = self._folder.status() or {}
        status = self._status
        for name in (
            "batches",
            "rows",
            "messages",
            "bytes",
            "ddls",
            "slow_rows",
            "skipped_rows",
            "corrupted_rows",
            "missed_rows",
            "errors",
        ):
            setattr(status, name, before.get(name, 0))
        if self._options.retries and before.get("state") == State.WARNING:
            status.state, status.error, status.warning_since = State.WARNING, before.get("error"), before.get("warning_since")
        else:
            status.state = after(State(before.get("state", State.NORMAL)), Event.RESUMED)
        status.moved_at = time.time()
        status.start_ts, status.checkpoint_ts, status.resolved_ts = identity.start_ts, at, at
        status.progress = self._options.config.progress
        self._save_status()
        self._folder.save_state(status.state)

    def _save(self, report: Report) -> SavedPosition:
        """Make a batch's end durable, then update the log's and the changefeed's status."""
        saved = self._retry.call(lambda: self._folder.save_checkpoint(report.end.ts, report.end.parts))
        self._saved = saved
        self._note_advance(report)
        status, stats = self._status, report.stats
        status.partitions = list(report.end.parts)
        status.batches += 1
        status.rows += stats.rows
        status.messages += stats.messages
        status.bytes += stats.bytes_out
        status.slow_rows += stats.slow_rows
        status.skipped_rows += stats.skipped_rows
        status.corrupted_rows += stats.corrupted_rows
        status.missed_rows += stats.missed_rows
        status.ddls += len(report.ddls)
        status.epoch = report.epoch
        status.last_batch = {"batch": report.batch, "rows": stats.rows, "attempts": report.attempts, "cpu_ms": stats.cpu_ns / 1e6}
        self._untold = True
        self._tell_if_due()
        if time.monotonic() >= self._next_warning_at:
            self._next_warning_at = time.monotonic() + LOG_INTERVAL_S
            log.info(
                "delivered up to %s: %d rows and %d DDLs in %d batches",
                tso.describe(report.to_ts),
                status.rows,
                status.ddls,
                status.batches,
            )
        return saved

    def _tell_if_due(self) -> None:
        """Tell of the batches so far, unless that was done a moment ago."""
        if self._untold and time.monotonic() - self._told_at >= TELL_S:
            self._tell()

    def _tell(self) -> None:
        """Tell the log and the status of the batches so far. Nothing depends on either being new: the checkpoint is durable."""
        self._told_at, self._untold = time.monotonic(), False
        if self._saved is not None:
            self._tell_log(self._saved.saved_ts)
        self._status.histograms = self._timings()
        self._status.brokers = self._brokers()
        self._save_status()

    def _passed(self, report: Report) -> None:
        """An empty interval: the status says so at once. The log is not told: the end is in memory only."""
        self._note_advance(report)
        self._save_status()

    def _note_advance(self, report: Report) -> None:
        status = self._status
        status.state, status.error, status.warning_since = after(State(status.state), Event.ADVANCED), None, None
        status.moved_at = time.time()
        status.checkpoint_ts, status.resolved_ts = report.to_ts, report.end.furthest

    def _tell_log(self, checkpoint_ts: tso.SavedTs) -> None:
        """Tell the log the new checkpoint, so that it may drop what lies below. If that cannot be written, the next batch writes it."""
        if self._registration is None:
            return
        try:
            self._registration.update(checkpoint_ts)
        except (LogUnavailable, DiskLow, FolderHeld) as error:
            log.debug("the checkpoint could not be written into the log: %s", error.message)

    def _note_away(self, error: LogUnavailable) -> None:
        """The log's storage is away, between two batches."""
        if time.monotonic() >= self._next_storage_warning_at:
            self._next_storage_warning_at = time.monotonic() + TELL_EVERY_S
            log.warning("the log's storage is away and is looked for until it is back: %s", error.message)
        self._note_failure(error)

    def _note_failure(self, error: TidemillError) -> None:
        """The threads that look at the log's storage and at executors may report a failure after the end: then it does not count."""
        status = self._status
        if status.state not in RUNS:
            return
        status.errors += 1
        status.state = after(State(status.state), Event.ERRED)
        status.error = {"code": error.code, "message": redact(str(error))}
        status.warning_since = status.warning_since or time.time()
        self._save_status()

    def _note_begin(self) -> None:
        """The start went well."""
        self._status.begun = True
        self._save_status()

    def _note_end(self, event: Event, error: TidemillError | None = None) -> None:
        status = self._status
        if status.state not in RUNS:  # its target is reached, and that could not be written down
            return
        status.state = after(State(status.state), event)
        status.error = {"code": error.code, "message": redact(str(error))} if error is not None else None
        if isinstance(error, Fenced):  # the state is another driver's by now
            return
        try:
            self._folder.save_state(status.state, status.error)
        except (LogUnavailable, DiskLow) as failure:
            log.warning("the changefeed's state %s cannot be written down: %s", status.state, failure.message)

    def _save_status(self) -> None:
        """Write delivery.json, until the end: threads that look at storage and executors may report a failure later."""
        if self._over:
            return
        self._folder.save_status(self._status)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parsed = parse_arguments(sys.argv[1:] if arguments is None else arguments, __doc__)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if SUPERVISED in os.environ:
        lifeline.hold()
    try:
        logs.setup(parsed.log_level, parsed.log_file, part="changefeed")
        traces.begin("changefeed")
        Runner(options_of(parsed), stop).run()
    except TidemillError as error:
        fail(error)
    except OSError as error:
        fail_of_system(error)


if __name__ == "__main__":
    main()
