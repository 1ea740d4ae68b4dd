"""The consumer's loop: messages in, complete transactions out, with progress stored beside them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidemill import tso
from tidemill.consumer.kafka import KafkaTopics, Record, no_such_topic
from tidemill.consumer.order.ordering import Ordering, Transaction
from tidemill.consumer.order.pending import Pending
from tidemill.consumer.order.progress import Progress, TopicPartition
from tidemill.consumer.order.spill import TemporaryFiles
from tidemill.consumer.reading import Read, read_at
from tidemill.consumer.targets import ConsumerTarget
from tidemill.errors import FeedMismatch, SinkUnavailable, TidemillError, TopicError, TopicUnavailable
from tidemill.protocols.open.events import DdlMessage
from tidemill.visible import short_statement

log = logging.getLogger(__name__)

POLL_MESSAGES = 2000
POLL_S = 0.2
COMMIT_ROWS = 200_000
HELD_S = 30.0
RETRY_S = (0.5, 1.0, 2.0, 5.0, 10.0)
TELL_S = 60.0
IDLE_COMMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Options:
    """The consumer's options. `flush_s`: how long rows may wait before they are written. `quota`: bytes of pending rows in memory."""

    flush_s: float = 0.5
    quota: int = 256 << 20
    target_ts: int | None = None
    stop_at_end: bool = False
    skipped_ddls: frozenset[int] = frozenset()  # ts of DDLs that are not applied
    ended_topics: frozenset[str] = frozenset()  # topics without further resolved ts: read to their end, not waited for
    retry_s: float = 600.0  # how long to retry an unreachable sink or broker


class Patience:
    """Retry pauses for an unreachable side, with growing length. Logs at first and once a minute."""

    def __init__(self, total_s: float) -> None:
        self._total_s = total_s
        self._began = time.monotonic()
        self._told_at: float | None = None
        self._waits = iter(RETRY_S)

    def wait_after(self, error: TidemillError) -> float | None:
        """Return the pause before the next attempt, or None when the time is used up."""
        wait, now = next(self._waits, RETRY_S[-1]), time.monotonic()
        if now + wait > self._began + self._total_s:
            return None
        if self._told_at is None or now - self._told_at >= TELL_S:
            self._told_at = now
            log.warning("%s; it is tried again, for %.0f s in all", error.message, self._total_s)
        return wait


@dataclass(slots=True)
class Counters:
    """The consumer's counters since its start."""

    messages: int = 0
    transactions: int = 0
    rows: int = 0
    ddls: int = 0
    commits: int = 0
    restarts: int = 0


class Consumer:
    """Reads topics into a target until `stop`, the target ts, or (`stop_at_end`) all messages present at the start are flushed.

    Raises TopicError, MalformedMessage with topic, partition and offset, and the target's errors. Either side may be away for a while.
    """

    def __init__(
        self, topics: KafkaTopics, target: ConsumerTarget, read: Read, options: Options, on_flush: Callable[[], None] = lambda: None
    ) -> None:
        self._topics, self._target, self._read, self._options, self._on_flush = topics, target, read, options, on_flush
        self.counters = Counters()
        self.ordering = self._begun()
        self._cluster = ""
        self._ends: dict[TopicPartition, int] = {}
        self._followed: set[TopicPartition] = set()
        self._flushed_at = self._committed_at = self._moved_at = time.monotonic()
        self._frontier = 0
        self._absent: tuple[str, ...] = ()

    def _begun(self) -> Ordering:
        return Ordering(Pending(self._options.quota, TemporaryFiles()), self._target.progress(), self._options.ended_topics)

    # Driven from outside

    def begin(self) -> None:
        """Follow all partitions, including those that are new since the last call."""
        self._join_new()

    def flush(self) -> None:
        """Write complete transactions. Raises the target's errors."""
        self._flush()

    # The loop

    def run(self, stop: threading.Event) -> None:
        """See the class."""
        self._patiently(self._join_new, stop)
        self._check_all_there()
        while not stop.is_set() and not self._is_done():
            records = self._topics.poll(POLL_MESSAGES, POLL_S)
            self._patiently(lambda records=records: self._take(records), stop)  # type: ignore[misc]
            now = time.monotonic()
            if now - self._flushed_at >= self._options.flush_s or (not records and self._options.stop_at_end):
                self._flushed_at = now
                self._patiently(self._flush, stop)
        if stop.is_set():
            try:
                self._flush()
            except (SinkUnavailable, TopicUnavailable) as error:
                log.warning("%s; what was complete is written after the next start", error.message)

    def _check_all_there(self) -> None:
        """Log missing topics, which are awaited because their writer creates them. Raises TopicError with `stop_at_end`."""
        if not self._absent:
            return
        if self._options.stop_at_end:
            raise no_such_topic(self._absent)
        log.warning("no such topic yet, it is waited for: %s", ", ".join(self._absent))

    def _is_done(self) -> bool:
        if self._options.target_ts is not None and self.ordering.flushed_ts >= self._options.target_ts:
            return True
        if not self._options.stop_at_end:
            return False
        partitions = self.ordering.partitions
        read = all(partitions[source].next_offset >= end for source, end in self._ends.items())
        return read and self.ordering.ready(self._options.target_ts) is None

    def _patiently(self, do: Callable[[], None], stop: threading.Event) -> None:
        """Retry while a side is away. Messages that were taken and not committed are then read again."""
        patience = Patience(self._options.retry_s)
        over = False
        while True:
            try:
                if over:
                    self.start_over()
                    over = False
                return do()
            except (SinkUnavailable, TopicUnavailable) as error:
                wait = patience.wait_after(error)
                if stop.is_set() or wait is None:
                    raise
                over = over or do == self._flush
            stop.wait(wait)

    def start_over(self) -> None:
        """Go back to the committed progress, as after a crash. Messages after it have to be read again."""
        self.counters.restarts += 1
        self.ordering.pending.clear()
        self._target.abandon()
        self.ordering = self._begun()
        self._topics.forget(self._followed)
        self._followed.clear()
        self._join_new()

    # Messages

    def _join_new(self) -> None:
        """Follow new partitions. They hold the frontier back until their first resolved ts."""
        found = self._topics.discover()
        self._check_cluster(found.cluster)
        self._absent = found.absent
        offsets: dict[TopicPartition, int] = {}
        for source in found.partitions:
            if source not in self.ordering.partitions:
                low, high = self._topics.bounds(source)
                at = self.ordering.join(source, low)
                if not low <= at <= high:
                    raise TopicError(
                        f"topic {source[0]}, partition {source[1]} is to be read from offset {at} on, but it has {low} to {high}",
                        hint="Its retention took messages that were not flushed, or the topic was made again. Begin with a new sink.",
                    )
                offsets[source] = at
                self._ends.setdefault(source, high)
        if offsets:
            log.info("following %s", ", ".join(f"{t}[{p}] from offset {at}" for (t, p), at in offsets.items()))
        self._topics.follow(offsets)
        self._followed |= offsets.keys()

    def _check_cluster(self, cluster: str) -> None:
        saved = self._target.progress().cluster if not self._cluster else self._cluster
        if saved and cluster and saved != cluster:
            raise FeedMismatch(
                f"the sink was filled from Kafka cluster {saved}, this is {cluster}", hint="Offsets of one mean nothing in the other."
            )
        self._cluster = cluster or saved
        self.ordering.of_cluster(self._cluster)

    def _take(self, records: list[Record]) -> None:
        for at, record in enumerate(records):
            try:
                events = read_at(self._read, *record)
            except SinkUnavailable:  # the storage of a claim check is away
                del records[:at]
                raise
            size = len(record.key or b"") + len(record.value or b"")
            if record.offset < self.ordering.partitions[record.topic, record.partition].next_offset:
                continue  # an old fetch returned it after the restart
            self.ordering.take((record.topic, record.partition), record.offset, events, size)
            self.counters.messages += 1

    # Flushing

    def _flush(self) -> None:
        """Write complete transactions.

        New partitions and topics are looked up between measuring the frontier and using it. The writer sent all rows below a resolved ts
        before it, also those in a new partition.
        """
        frontier = self.ordering.frontier
        if self.ordering.ready(self._options.target_ts, frontier) is None and self.ordering.partitions:
            self._look_around()
            return
        self._join_new()
        upto = self.ordering.ready(self._options.target_ts, frontier)
        if upto is None or any(self._topics.bounds(source)[1] > read for source, read in self.ordering.ended(upto).items()):
            return
        self._apply(upto)
        self._moved_at = time.monotonic()

    def _look_around(self) -> None:
        """Look for new partitions while nothing moves. If that lasts, log what holds the frontier back."""
        now = time.monotonic()
        if now - self._committed_at > IDLE_COMMIT_S:
            self._committed_at = now
            self._join_new()
        if now - self._moved_at > HELD_S:
            self._moved_at = now
            log.warning("%s", self.held())

    def held(self) -> str:
        """Return a text about the partitions that hold the frontier back."""
        names = ", ".join(f"{topic}[{partition}]" for topic, partition in self.ordering.holding()) or "no partition is there yet"
        at = self.ordering.frontier
        said = f"has sent no resolved ts above {tso.describe(at)}" if at else "has sent no resolved ts at all"
        trouble = f"; the brokers: {self._topics.trouble}" if self._topics.trouble else ""
        way_out = "; a topic that nobody writes to any more is not waited for with --ended-topic TOPIC" if self.ordering.holding() else ""
        return f"{self.ordering.pending.rows} rows wait: {names} {said}{trouble}{way_out}"

    def _apply(self, upto: int) -> None:
        rows = 0
        has_steps = False
        last = 0
        for step in self.ordering.drain(upto):
            if rows >= COMMIT_ROWS and step.ts > last:
                self._commit(self.ordering.partly_flushed(last))
                rows = 0
            has_steps, last = True, step.ts
            if isinstance(step, Transaction):
                self._target.rows(step.rows)
                rows += len(step.rows)
                self.counters.rows += len(step.rows)
                self.counters.transactions += 1
            else:
                if self._target.commits_before_ddls:
                    self._commit(self.ordering.partly_flushed(max(step.ts - 1, self.ordering.flushed_ts)))
                    rows = 0
                self._apply_ddl(step)
        done = self.ordering.flushed(upto)
        if has_steps or time.monotonic() - self._committed_at > IDLE_COMMIT_S or self._reached(upto):
            self._commit(done)

    def _apply_ddl(self, ddl: DdlMessage) -> None:
        where = f"at {ddl.ts} in {ddl.schema}.{ddl.table or '*'}"
        if ddl.ts in self._options.skipped_ddls:
            log.warning("left out, as asked for: the DDL %s: %s", where, short_statement(ddl.query))
            return
        self._target.ddl(ddl)
        self.counters.ddls += 1
        log.info("DDL %s: %s", where, short_statement(ddl.query))

    def _reached(self, upto: int) -> bool:
        return self._options.stop_at_end or upto == self._options.target_ts

    def _commit(self, done: Progress) -> None:
        self._target.commit(done)
        self._topics.commit(done)
        self._committed_at = time.monotonic()
        self.counters.commits += 1
        self._on_flush()

    # What it says of itself

    def status(self) -> dict[str, Any]:
        """Return the figures of the consumer's state."""
        o, c = self.ordering, self.counters
        frontier = o.frontier
        lag = max(0.0, time.time() - tso.physical_ms(o.flushed_ts) / 1000) if o.flushed_ts else None
        return {
            "flushed_ts": o.flushed_ts,
            "frontier_ts": frontier,
            "lag_s": lag,
            "messages": c.messages,
            "transactions": c.transactions,
            "rows": c.rows,
            "ddls": c.ddls,
            "repeated_rows": o.rows_repeated,
            "repeated_ddls": o.ddls_repeated,
            "pending_rows": o.pending.rows,
            "pending_bytes": o.pending.bytes,
            "spilled_rows": o.pending.spilled_rows,
            "commits": c.commits,
            "restarts": c.restarts,
            "partitions": {
                f"{topic}[{number}]": {"offset": p.next_offset, "resolved_ts": p.resolved_ts, "flushed_ts": p.flushed_ts}
                for (topic, number), p in sorted(o.partitions.items())
            },
            "held_by": [f"{topic}[{number}]" for topic, number in o.holding()],
            "ended": [f"{topic}[{number}]" for topic, number in sorted(o.ended())],
        }
