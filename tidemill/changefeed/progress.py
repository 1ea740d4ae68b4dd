"""How far a changefeed is, and where that is written.

checkpoint.json  the end of the last batch, durable. Nothing else may be ahead of it (`FeedFolder`)
LOG/feeds/ID     the checkpoint as the log's retention knows it: at or below checkpoint.json, up to REPORT_S late
delivery.json    what people and metrics see. It may be lost, and it may be ahead: the end of empty intervals is in memory only
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any

from tidemill import tso
from tidemill.changefeed.feed_folder import FeedFolder, FeedIdentity
from tidemill.changefeed.feed_status import Status, described
from tidemill.changefeed.runtime import Listener
from tidemill.changefeed.states import RUNS, Event, State, after
from tidemill.changelog.feeds import Registration
from tidemill.changelog.storage.retry import StorageRetry
from tidemill.delivery.machine.actions import Report
from tidemill.delivery.position import SavedPosition
from tidemill.errors import DiskLow, Fenced, FolderHeld, LogUnavailable, RegistryError, SchemaIncompatible, TidemillError

log = logging.getLogger(__name__)

REPORT_S = 0.95
"""How often delivery.json and the log's registration are written, at most, while one batch follows the other."""
LOG_INTERVAL_S = 30.0
"""How often progress is written to the process's log, at most."""

_COUNTERS = ["batches", "rows", "messages", "bytes", "ddls", "slow_rows", "skipped_rows", "corrupted_rows", "missed_rows", "errors"]
"""Fields of delivery.json that go on over restarts."""


class Progress:
    """The checkpoint, state and counters of one changefeed in this process."""

    def __init__(
        self,
        folder: FeedFolder,
        listener: Listener,
        retry: StorageRetry,
        *,
        target_ts: int | None,
        status_every_s: float,
        created_at: float = 0.0,
    ) -> None:
        """`retry`: waits for the storage of the changefeed's state, and for room in it."""
        self._folder, self._listener, self._retry = folder, listener, retry
        self._status_every_s = status_every_s
        self.status = Status(folder.changefeed, created_at=created_at, pid=os.getpid(), target_ts=target_ts)
        self._registration: Registration | None = None
        self._saved: SavedPosition | None = None  # the checkpoint, once a batch of this process has moved it
        self._timings: Callable[[], dict[str, Any]] = dict
        self._brokers: Callable[[], list[dict[str, Any]]] = list
        self._batches_pending = False  # batches are delivered that neither delivery.json nor the registration shows
        self._status_pending = False  # delivery.json waits for status_every_s
        self._reported_at = self._status_at = self._logged_at = float("-inf")
        self._closed = False

    # ---- the start

    def begin(self, identity: FeedIdentity, ts: int, *, by_table: bool, retries: bool) -> None:
        """Go on from a checkpoint. `retries`: after an error that may pass, which stays until the checkpoint moves."""
        before = self._folder.status() or {}
        status = self.status
        for name in _COUNTERS:
            setattr(status, name, before.get(name, 0))
        if retries and before.get("state") == State.WARNING:
            status.state, status.error, status.warning_since = State.WARNING, before.get("error"), before.get("warning_since")
        else:
            status.state = after(State(before.get("state", State.NORMAL)), Event.RESUMED)
        status.moved_at = time.time()
        status.start_ts, status.checkpoint_ts, status.resolved_ts = identity.start_ts, ts, ts
        status.progress = "table" if by_table else "global"
        self._write_status()
        self._folder.save_state(status.state)

    def forget_refused(self) -> None:
        """If the schema registry had refused something, a person may have changed it there: forget what is cached of the registry."""
        error = (self._folder.status() or {}).get("error") or {}
        if error.get("code") in (RegistryError.code, SchemaIncompatible.code):
            self._folder.schemas.unlink(missing_ok=True)

    def register(self, registration: Registration) -> None:
        """Update this registration with the log from now on."""
        self._registration = registration

    def took_over(self, begin: tso.SavedTs, epoch: int) -> None:
        """This process delivers from there on, in that epoch and later ones. Raises LogUnavailable, LogRefused, DiskLow."""
        if self._registration is not None:
            self._registration.update(begin, epoch)

    def measure(self, timings: Callable[[], dict[str, Any]], brokers: Callable[[], list[dict[str, Any]]]) -> None:
        """Show these durations and brokers in delivery.json."""
        self._timings, self._brokers = timings, brokers

    def begun(self) -> None:
        """Note that the start went well."""
        self.status.begun = True
        self._write_status()
        self._listener.begun()

    # ---- batches

    def save(self, report: Report) -> SavedPosition:
        """Make the end of a batch durable. Raises Fenced, LogUnavailable."""
        saved = self._retry.call(lambda: self._folder.save_checkpoint(report.end.ts, report.end.parts))
        self._saved = saved
        self._advance(report)
        status, stats = self.status, report.stats
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
        self._batches_pending = True
        self._listener.delivered(report)
        self.flush_if_due()
        if time.monotonic() - self._logged_at >= LOG_INTERVAL_S:
            self._logged_at = time.monotonic()
            counts = status.rows, status.ddls, status.batches
            log.info("delivered up to %s: %d rows and %d DDLs in %d batches", tso.describe(report.to_ts), *counts)
        return saved

    def passed(self, report: Report) -> None:
        """Note the end of an empty interval. It is in memory only, so the registration stays where it is."""
        self._advance(report)
        self._listener.passed(report)
        if not self._status_every_s or self._status_pending:
            self._write_status()

    def _advance(self, report: Report) -> None:
        status = self.status
        status.state, status.error, status.warning_since = after(State(status.state), Event.ADVANCED), None, None
        status.moved_at = time.time()
        status.checkpoint_ts, status.resolved_ts = report.to_ts, report.end.furthest

    def flush_if_due(self) -> None:
        """Show the batches so far, unless that was done less than REPORT_S ago."""
        if self._batches_pending and time.monotonic() - self._reported_at >= REPORT_S:
            self.flush()

    def flush(self) -> None:
        """Show the batches so far in the registration and delivery.json. The checkpoint is durable already."""
        self._reported_at, self._batches_pending = time.monotonic(), False
        if self._saved is not None:
            self._update_registration(self._saved.saved_ts)
        self.status.histograms = self._timings()
        self.status.brokers = self._brokers()
        self._write_status()

    def _update_registration(self, checkpoint_ts: tso.SavedTs) -> None:
        """Let the log drop what lies below the checkpoint. If that cannot be written, the next batch writes it."""
        if self._registration is None:
            return
        try:
            self._registration.update(checkpoint_ts, self.status.epoch)
        except (LogUnavailable, DiskLow, FolderHeld) as error:
            log.debug("the checkpoint could not be written into the log: %s", error.message)

    # ---- errors and the end

    def failed(self, error: TidemillError) -> None:
        """Note an error that is followed by another attempt. Threads that watch storage and executors may report one after the end: then it
        does not count."""
        status = self.status
        if status.state not in RUNS:
            return
        status.errors += 1
        status.state = after(State(status.state), Event.ERRED)
        status.error = described(error)
        status.warning_since = status.warning_since or time.time()
        self._write_status()
        self._listener.failed(error)

    def broke(self, error: TidemillError) -> None:
        """Note the error that ends this process's delivery."""
        if isinstance(error, Fenced):
            self._batches_pending = False  # the registration is another driver's by now
        else:
            self.status.errors += 1

    def end(self, event: Event, error: TidemillError | None = None) -> None:
        """Change the state for good: the target is reached, or the changefeed is refused. Raises as `Listener.ended`."""
        status = self.status
        if status.state not in RUNS:  # its target is reached, and that could not be written down
            return
        status.state = after(State(status.state), event)
        status.error = described(error) if error is not None else None
        if isinstance(error, Fenced):  # the state is another driver's by now
            return
        self._listener.ended(State(status.state), error)

    def close(self) -> None:
        """Write what is pending. Nothing is written afterwards."""
        self.status.running = False
        if self._batches_pending:
            self.flush()
        else:
            self._write_status()
        self._closed = True

    def _write_status(self) -> None:
        """Write delivery.json, at most every `status_every_s` while all is well."""
        if self._closed:
            return
        if self._status_every_s:
            # A changefeed that a server removed while its batch did not end has no folder any more, and gets none.
            if not self._folder.path.is_dir():
                return
            healthy = self.status.error is None and self.status.running
            self._status_pending = healthy and time.monotonic() - self._status_at < self._status_every_s
            if self._status_pending:
                return
            self._status_at = time.monotonic()
        self._folder.save_status(self.status)
