"""One changefeed, from its start to its end in this process. It is built on a `Runtime`, and the same in a process of its own and in the
delivery host.

    lock the folder
    wait for the log; settle the settings
    look at the fence, begin at the checkpoint, register with the log
                                           retention keeps what lies above the checkpoint
    open sink, registry, schemas
    take the fence, claim the checkpoint   from here on no earlier driver can go on
    deliver batches                        each: rows, DDLs, then the checkpoint

1. Nothing is read from the log below the registration's ts.
2. The checkpoint is read again after the claim: an earlier driver may have moved it until then. The registration is moved there, with
   the epoch: whoever looked at the fence before, and registers late, does not replace it.
3. The interval of a batch is in the fence before any of it is delivered, so a batch that is begun again has the same interval.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack

from tidemill import tso
from tidemill.changefeed.feed_folder import FeedFolder, FeedIdentity
from tidemill.changefeed.progress import Progress
from tidemill.changefeed.runner_options import Options
from tidemill.changefeed.runtime import Runtime
from tidemill.changefeed.states import Event
from tidemill.changelog import feeds, log_format
from tidemill.changelog.files.bounds import is_covered, saved_begin, within
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader, log_exists
from tidemill.changelog.storage.outcomes import storage_errors
from tidemill.changelog.storage.retry import START_S, StorageRetry
from tidemill.delivery.batch import BatchDriver
from tidemill.delivery.build import Delivery
from tidemill.delivery.clock import Clock
from tidemill.delivery.epoch_fence import Fence
from tidemill.delivery.inputs.table_router import Settings
from tidemill.delivery.loop import Passing, deliver
from tidemill.delivery.machine.batch_machine import under_way
from tidemill.delivery.machine.failures import Stopped
from tidemill.delivery.machine.retry import Pauses, RetryPolicy
from tidemill.delivery.position import SavedPosition
from tidemill.delivery.zone import parse_zone, zone_name
from tidemill.errors import DiskLow, LogUnavailable, SinkUnavailable, StartTsOutOfLog, TidemillError, redact
from tidemill.kernels.entries import load_imported
from tidemill.protocols.all import spec_of
from tidemill.protocols.spec import load
from tidemill.sinks.base import HasBrokers
from tidemill.tidb.schema.tracking.history import SchemaHistory

log = logging.getLogger(__name__)

LOG_POLL_S = 0.25


def folder_of(options: Options) -> FeedFolder:
    """Return the folder of a changefeed that is started with these options."""
    return FeedFolder(options.data_dir, options.changefeed, options.state, shared=options.shared, term=options.term)


class Changefeed:
    """Runs one changefeed. `progress` says how far it is."""

    def __init__(self, options: Options, folder: FeedFolder, runtime: Runtime, stop: threading.Event) -> None:
        """`stop`: ends it after the batch."""
        self._options, self.folder, self._runtime, self._stop = options, folder, runtime, stop
        # Waits for the storage of the log and of the changefeed's state, and for room in it.
        self._retry = StorageRetry(stop, waits_for=(LogUnavailable, DiskLow))
        self.progress = Progress(
            folder,
            runtime.listener,
            self._retry,
            created_at=options.created_at,
            target_ts=options.target_ts,
            status_every_s=runtime.status_every_s,
        )

    def run(self) -> None:
        """Deliver until a stop is asked for or the target is reached. Raises the error that ended the changefeed."""
        self.folder.lock()
        with ExitStack() as stack:
            stack.callback(self.folder.unlock)
            try:
                with storage_errors(str(self.folder.path)):
                    self._deliver(stack)
            except Stopped:
                log.info("stopped")
            except TidemillError as error:
                if isinstance(error, LogUnavailable | DiskLow) and self._stop.is_set():
                    log.info("stopped while storage is away: %s", error.message)
                    return
                self.progress.broke(error)
                if not self._options.supervised:  # else the supervisor decides what follows
                    self._end(Event.REFUSED, error)
                raise
            finally:
                self.progress.close()

    def _deliver(self, stack: ExitStack) -> None:
        options, folder, progress, patient = self._options, self.folder, self.progress, self._retry.call
        settings = Settings(
            options.changefeed, options.config.sink_uri(options.sink_uri), options.config, parse_zone(options.tz), options.skip_rows
        )
        for rule in options.skip_rows:
            log.warning("--skip-row leaves out %s", rule)
        self._wait_for_log()
        reader = patient(self._runtime.log.open)
        settings = settings.of_cluster(reader.identity.cluster_id)
        identity = wanted = self._identity(reader, settings)
        if not options.term:  # else the server that leads has the settings
            identity = patient(lambda: folder.settle(wanted, start_given=options.start_ts is not None))
        is_first = patient(folder.checkpoint) is None
        name, of = options.changefeed, feeds.SERVER if options.term else ""
        floor = patient(lambda: max(folder.last_epoch(), feeds.epoch_of(reader.storage, name)))
        fence = Fence(reader.storage, log_format.fence_name(name), floor=floor, term=options.term)
        seen = patient(fence.look)  # a changefeed that a later leader has removed is not registered again
        begin = patient(lambda: folder.begin(identity))
        at = begin.saved_ts
        patient(lambda: self._runtime.log.reach(reader, at))
        patient(lambda: self._check_start(reader, at))
        patient(progress.forget_refused)
        patient(lambda: progress.begin(identity, at, by_table=options.config.by_table, retries=options.retries))
        progress.register(patient(lambda: feeds.register(options.log, name, saved_begin(reader, at), of=of, epoch=seen)))
        if options.target_ts is not None and at >= options.target_ts:
            self._end(Event.TARGET_REACHED)
            return
        delivery = Delivery.open(stack, settings, self._stop, schemas_file=folder.schemas)
        self._check_reachable(delivery, first=is_first)
        progress.measure(delivery.timings.as_dict, delivery.sink.brokers if isinstance(delivery.sink, HasBrokers) else list)
        packs = delivery.packs(folder.packs, lenient=not is_first)
        history = patient(lambda: load_history(reader, from_ts=within(reader.start_ts, at), may_stop=True))
        source = delivery.source(reader, history, packs)
        if delivery.schemas is not None:
            packs.follow(history.snapshot(within(history.start_ts, at)))  # what the registry refuses is reported at the start
        epoch = patient(fence.take)
        patient(lambda: folder.claim(fence.driver, epoch))  # from here on no earlier driver can go on, wherever it runs
        begin = patient(lambda: folder.begin(identity))
        patient(lambda: progress.took_over(saved_begin(reader, begin.saved_ts), epoch))
        if settings.sink.protocol is not None:
            load(spec_of(settings.sink.protocol).encoder)
            load_imported()  # if kernels are to be compiled, then here, where the log shows it
        log.info("delivery goes on from %s", tso.describe(begin.ts))
        runner = self._runtime.spark.runner(stack, progress.failed)
        started_ts = options.upstream_ts or reader.resolved_ts()  # what is above the log's end was not delivered before
        driver = delivery.driver(
            *(packs, source, runner, fence, RetryPolicy(total_s=options.retry_s), progress.failed),
            started_ts=started_ts,
            cluster_id=reader.identity.cluster_id,
        )
        clock = self._clock(settings, reader, history, fence, begin)
        reached = self._run_batches(driver, reader, clock, begin)
        log.info("%s; delivered up to %s", "the target is reached" if reached else "stopped", tso.describe(progress.status.checkpoint_ts))
        if reached:
            self._end(Event.TARGET_REACHED)

    def _clock(self, settings: Settings, reader: LogReader, history: SchemaHistory, fence: Fence, begin: SavedPosition) -> Clock:
        return Clock(
            *(reader, history, begin),
            target_ts=self._options.target_ts,
            trigger_s=max(self._options.trigger, settings.sink.spec.flush_ms(settings.sink)) / 1000,
            first_end=under_way(begin, fence.planned, fence.planned_ranges),  # the batch that was under way ends where it was to end
            by_table=self._options.config.by_table,
            sync_point_every_ms=settings.sink.spec.ends_every_ms(settings.sink),
        )

    def _run_batches(self, driver: BatchDriver, reader: LogReader, clock: Clock, begin: SavedPosition) -> bool:
        """Deliver until the target is reached (True) or a stop is asked for (False)."""
        with ExitStack() as stack:
            return deliver(
                *(driver, clock, self._runtime.log.heads(stack, reader, clock), begin),
                target_ts=self._options.target_ts,
                save=self.progress.save,
                passing=Passing(self.progress.passed, self._runtime.log.keep_every_s),
                on_away=self._log_away,
                check=self._between_batches,
            )

    def _between_batches(self) -> None:
        """Raises why Spark is not up, or JobLost."""
        status, spark = self.progress.status, self._runtime.spark
        if not status.begun and spark.has_begun(status.rows):
            self.progress.begun()
        spark.check()
        self.progress.flush_if_due()

    def _log_away(self, error: LogUnavailable) -> None:
        self._runtime.log.away(error)
        self.progress.failed(error)

    def _end(self, event: Event, error: TidemillError | None = None) -> None:
        try:
            self.progress.end(event, error)
        except (LogUnavailable, DiskLow) as failure:
            log.warning("the changefeed's state %s cannot be written down: %s", self.progress.status.state, failure.message)

    def _check_reachable(self, delivery: Delivery, *, first: bool) -> None:
        """Check at the start whether the sink refuses anything. If it is away, wait for it, but not at the very first start.
        Raises Stopped."""

        def connect() -> None:
            delivery.sink.ensure_topics({delivery.settings.sink.topic})
            if delivery.schemas is not None:
                delivery.schemas.meet()

        pauses = Pauses(RetryPolicy(total_s=self._options.retry_s))
        while True:
            try:
                connect()
                return
            except SinkUnavailable as error:
                pause = None if first else pauses.after_failure(time.monotonic())
                if pause is None:
                    raise
                log.warning("the sink is away and is tried again in %.0f s: %s", pause, error)
                self.progress.failed(error)
            if self._stop.wait(pause):
                raise Stopped("stopped while waiting for the sink")

    def _wait_for_log(self) -> None:
        """The capture may not have made the log yet. The address of storage that this changefeed has never reached may be wrong, so
        it is not waited for without end. Raises Stopped, LogUnavailable."""
        logged = False
        within_s = START_S if not self._options.term and self.folder.identity() is None else None
        while not self._retry.call(lambda: log_exists(self._options.log), within_s):
            if not logged:
                log.info("waiting for the log %s", redact(self._options.log))
                logged = True
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
