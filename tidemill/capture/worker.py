"""What one process of a capture does itself: it pulls the spans of its partitions, and of the schema, from the stores into the log.

A capture in one process has one Pulling for everything. A capture in groups has one in each group, for the group's partitions, and one in
the coordinator, for the schema stream.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tidemill import tso
from tidemill.capture import rules
from tidemill.capture.config import CaptureConfig
from tidemill.capture.lifecycle import Lifecycle, in_thread, tick
from tidemill.capture.status import Section
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.feed.puller import Puller
from tidemill.capture.tikv.receive.ingest import Receiver
from tidemill.capture.tikv.receive.matcher import FOREVER
from tidemill.capture.tikv.receive.seal_spans import seal_traces
from tidemill.capture.tikv.receive.workers import Threads
from tidemill.capture.tikv.regions.actions import Span
from tidemill.capture.tikv.regions.machine import RegionMachine
from tidemill.capture.tikv.regions.state import Phase
from tidemill.capture.tikv.sort.partition import PartitionLog, Sealed
from tidemill.capture.tikv.tables import Moved, TableSpans
from tidemill.capture.tikv.watchdog.act import Watchdog
from tidemill.changelog import imports
from tidemill.changelog.log_format import CaptureRules
from tidemill.changelog.retention import no_room_text
from tidemill.changelog.storage.retry import StorageRetry
from tidemill.changelog.writer import LogWriter
from tidemill.errors import DiskLow, LogError, LogUnavailable, UpstreamUnavailable
from tidemill.tidb.keys import encode_range
from tidemill.tidb.schema.metakeys import capture_ranges, meta_filter
from tidemill.tidb.schema.tracking.history import SchemaHistory

SCHEMA_SPANS = -1_000_000  # ids of the schema's spans count up from here: tables have positive ids
SEALERS = 8  # partitions sealed at the same time on an object store: each seal waits for three requests
MAINTAIN_EVERY = 10.0
BEGINNING_S = 600.0  # after which the garbage collector runs again, even if some ranges are not live yet
ROOM_EVERY, TELL_EVERY = 1.0, 60.0

_log = logging.getLogger(__name__)


class Pulling:
    """Pulls `partitions` of the log. With `on_schema` it also pulls the schema stream, and calls `on_schema` on the event loop for each
    seal.

    The caller owns `history`: it advances the history, then calls `follow`. Rows are sealed no further than `follow` has said.
    """

    def __init__(
        self,
        config: CaptureConfig,
        pd: PdClient,
        writer: LogWriter,
        history: SchemaHistory,
        scratch: Path,
        life: Lifecycle,
        partitions: Sequence[int],
        on_schema: Callable[[Sealed], None] | None = None,
        retry: StorageRetry | None = None,
        wants: rules.Wants | None = None,
    ) -> None:
        """`wants`: which tables; by default those of the log's rules."""
        self.retry = retry or StorageRetry()  # with the log's storage
        self.writer, self.history, self.life = writer, history, life
        self.partitions = tuple(partitions)
        self._on_schema = on_schema
        self._index = {p: i for i, p in enumerate(self.partitions)}  # partition of the log -> index in the receiver
        scratch.mkdir(parents=True, exist_ok=True)
        logs = [PartitionLog(writer.partition(p), scratch) for p in self.partitions]
        if on_schema is not None:
            logs.append(PartitionLog(writer.schema, scratch, key_filter=keeps))
        self.receiver = Receiver(
            logs,
            scratch,
            on_events=lambda events: self.puller.post(events),
            on_sealed=self._sealed,
            on_failure=partial(life.later, life.fail),
            options=config.receiving,
            note_import=self._note_import,
            workers=Threads(1 if writer.storage.local else min(len(logs), SEALERS)),
            retry=self.retry,
            traced=seal_traces([*map(str, self.partitions), *(("schema",) if on_schema is not None else ())]),
        )
        self.machine = RegionMachine(len(logs), max_scans=config.tikv_scans)
        self.puller = Puller(pd, self.receiver, self.machine, config.transport, life.fail, filter_loop=config.filter_loop)
        self.watchdog = Watchdog(
            self.puller, self.receiver, lambda id_: self.spans.label(id_), len(logs), config.stuck_thresholds, config.lock_grace
        )
        entries = writer.identity.rules_above(min([*self.heads(), history.resolved_ts]))
        self._left: list[Moved] = []  # moves whose old span has ended
        self.spans = TableSpans(
            *(writer.identity.layout, self._add, self.puller.remove_span, self._moved, wants or rules.wants_of(*entries), self.partitions),
            lambda span: self.puller.rename_span(span.id, span.label),
            self._left.append,
        )
        self._narrowed = entries[-1] if len(entries) > 1 else None
        self.paused = ""  # why nothing is published
        self.held_at: int | None = None  # the ts that no row of the log may pass, while its layout changes
        self._counted_since = time.time()
        self._scratch = scratch
        self._followed = 0  # schema changes up to here are reflected in the spans

    def _note_import(self, ts: int, table_id: int) -> None:
        """Record imported rows (on the sealing thread). See `changelog.imports`."""
        _log.warning(
            "rows of table %d were imported at %s and are not in the change feed: changefeeds of the table stop there",
            *(table_id, tso.describe(ts)),
        )
        imports.note(self.writer.storage, ts, table_id)

    async def begin(self) -> None:
        """Place the first spans and begin pulling. Rows are sealed as far as the schema is known. No head moves before its records are
        placed."""
        self._began = time.monotonic()
        await in_thread(self._place)  # takes long with 100,000 tables; nothing else uses spans and regions before the start
        self._followed = self.history.resolved_ts
        self.receiver.set_ceiling(self._followed, range(len(self.partitions)))
        self.receiver.start()
        self.puller.start()

    def _place(self) -> None:
        if self._on_schema is not None:
            schema, head = len(self.partitions), self.writer.schema.head
            if self.history.resolved_ts != head:  # a change between the two would never become a span
                raise LogError(f"schemas are known up to {self.history.resolved_ts}, but their stream would continue at {head}")
            for i, (_, (start, end)) in enumerate(capture_ranges(self.history.job_table_ids)):
                low, high = encode_range(start, end)
                self.puller.add_span(Span(SCHEMA_SPANS + i, low, high, schema, head, "schema", urgent=True))
        self.spans.begin(self.history, self.heads())
        if self._narrowed is not None:
            self.spans.narrow(rules.wants_of(self._narrowed), self.history, self._narrowed.from_ts)
        self.puller.place_all()

    def heads(self) -> list[int]:
        """Return the heads of all partitions of the log; FOREVER for those that are not pulled here."""
        found = [FOREVER] * self.writer.identity.partitions
        for p in self.partitions:
            found[p] = self.writer.partition(p).head
        return found

    def follow(self, head: int) -> None:
        """Begin and end spans by the schema changes up to `head`, then let rows be sealed up to `head`."""
        heads = self.heads()
        self.spans.follow(self.history.next_table_changes(self._followed, head), heads)
        self.spans.retire(heads)
        self._followed = head
        self._act()
        self.receiver.call(partial(self.receiver.set_ceiling, head, range(len(self.partitions))))

    def take_rules(self, entry: CaptureRules) -> None:
        """Capture the tables of other rules. The schema is known up to their ts, and no head has passed it."""
        self.spans.narrow(rules.wants_of(entry), self.history, entry.from_ts)
        self.spans.widen(self.history, entry.from_ts, self.heads())
        self._act()

    def freeze_at(self, ts: int | None) -> None:
        """Seal the schema stream, and with it all rows, no further than `ts`; None: without limit."""
        self.held_at = ts
        self.receiver.call(partial(self.receiver.set_ceiling, FOREVER if ts is None else ts, [len(self.partitions)]))

    def tidy(self) -> None:
        """Remove spans whose end has been reached. To be called now and then."""
        self.spans.retire(self.heads())
        self._act()
        gc_pause, counts = self.life.gc_pause, self.machine.counts()
        ranges = sum(counts.values())
        if gc_pause.rests and (counts.get(Phase.LIVE.value) == ranges or time.monotonic() > self._began + BEGINNING_S):
            gc_pause.release(ranges)

    def _act(self) -> None:
        self.puller.act()
        left, self._left[:] = list(self._left), []
        for moved in left:  # the calls queue up behind the end of the subscriptions
            self.receiver.call(partial(self.receiver.moved_for_good, self._index[moved.old], moved.physical_id, moved.ts))

    async def watch_room(self) -> None:
        """Check the free disk space forever. Below the low-water mark, work that needs space waits."""
        told = float("-inf")
        while True:
            lack, short = await asyncio.to_thread(self._lack_of_room)
            self.receiver.short_of_disk = bool(short)
            before, self.paused = self.paused, lack or self.receiver.withheld or (short if self.receiver.full else "")
            now = asyncio.get_running_loop().time()
            if self.paused and self.retry.outage is None and (not before or now - told >= TELL_EVERY):
                told = now
                _log.warning("the capture pauses: %s; it goes on by itself when there is room", self.paused)
            elif before and not self.paused:
                _log.info("the capture goes on")
            await tick(ROOM_EVERY)

    def _lack_of_room(self) -> tuple[str, str]:
        """Return why nothing can be published now, and why nothing can be spilled; empty: it can."""
        limit = self.writer.options.low_water_bytes
        try:
            low = self.writer.low
            lack = f"disk low: {low.message}" if low is not None else ""
        except LogUnavailable as e:
            lack = f"storage is away: {e.message}"
        try:
            free = shutil.disk_usage(self._scratch).free
        except OSError as e:
            return lack, f"disk is away: {self._scratch}: {e.strerror or e}"
        return lack, f"disk low: {no_room_text(str(self._scratch), free, limit)}" if free < limit else ""

    async def stop(self) -> None:
        """End all streams and seal what is resolved. An error of the receiver becomes the error of the lifecycle, unless that has one
        already."""
        await self.puller.stop()
        self.retry.end()
        await asyncio.to_thread(self.receiver.stop)
        if self.receiver.failure is not None:
            self.life.fail(self.receiver.failure)
        if self.receiver.withheld:
            _log.warning("rows that could not be written are captured again at the next start: %s", self.receiver.withheld)

    def look(self) -> Section:
        """Return the status of this part of the capture."""
        stats, matcher, verdicts = self.receiver.stats, self.receiver.matcher, self.watchdog.verdicts
        return Section(
            counted_since=self._counted_since,
            heads={p: self.writer.partition(p).head for p in self.partitions},
            synced={p: self.writer.partition(p).synced_head for p in self.partitions},
            tables=len(self.spans),
            regions=self.machine.counts(),
            rows=stats.sealed_rows,
            bytes=stats.sealed_bytes,
            segments=stats.segments,
            received_bytes=stats.bytes,
            received_messages=stats.messages,
            spilled_rows=stats.spilled_rows,
            region_errors=dict(self.machine.errors),
            protocol_violations=stats.violations,
            waiting_bytes=matcher.row_bytes(),
            prewrite_bytes=matcher.prewrite_bytes(),
            slowest=[holder | {"partition": self._named(holder["partition"])} for holder in verdicts.holders],
            stuck=verdicts.stuck,
            held_tables=[one | {"partition": self._named(one["partition"])} for one in verdicts.held_tables],
            ranges_behind=verdicts.ranges_behind,
            locks_resolved=verdicts.locks_resolved,
            transactions_resolved=verdicts.transactions_resolved,
            regions_renewed=verdicts.renewed,
            streams_renewed=verdicts.streams_renewed,
            paused=self.paused,
            region_questions=self.machine.questions,
            spilled_prewrites=self.receiver.prewrites.written,
            memory_bytes=matcher.memory(),
            inbox_bytes=self.receiver.inbox.bytes,
            violations=dict(stats.causes),
            stages=stats.stages.as_dict(),
            cpu_seconds={step: round(seconds, 3) for step, seconds in stats.cpu.items()},
            **matcher.counts(),
        )

    def _named(self, index: int) -> int:
        """Return the partition of the log for a partition of the receiver; the schema stream counts as the one after the last."""
        return self.partitions[index] if index < len(self.partitions) else self.writer.identity.partitions

    def _add(self, span: Span) -> None:
        self.puller.add_span(replace(span, partition=self._index[span.partition]))

    def _moved(self, moved: Moved) -> None:
        """Tell both partitions of a move, as far as they are pulled here, from when on the rows belong to the other."""
        logs, old, new = self.receiver.logs, self._index.get(moved.old), self._index.get(moved.new)
        if old is not None:
            self.receiver.call(partial(logs[old].moved_away, moved.physical_id, moved.ts, FOREVER, moved.handles))
        if new is not None:
            self.receiver.call(partial(logs[new].came_back, moved.physical_id, moved.ts, moved.handles))

    def _sealed(self, index: int, done: Sealed) -> None:
        if index == len(self.partitions):
            self.life.later(self._schema_sealed, done)

    def _schema_sealed(self, done: Sealed) -> None:
        if self.life.is_over or self._on_schema is None:
            return
        try:
            self._on_schema(done)
        except BaseException as e:  # in a callback of the event loop an exception would only be logged
            self.life.fail(e)


async def maintain(pd: PdClient, writer: LogWriter, resolved_ts: Callable[[], int], retry: StorageRetry) -> None:
    """Run the log's maintenance forever, starting at once: a capture that finds the disk low waits for the space that maintenance frees.
    Storage outages are waited for."""
    while True:
        try:
            now = await pd.tso()
        except UpstreamUnavailable as e:
            _log.warning("%s", e.message)
            now = resolved_ts()  # no file gets older meanwhile
        try:
            done = await retry.in_thread(partial(writer.maintain, now))
        except DiskLow as e:  # on a full disk nothing can be removed either; `watch_room` logs it
            _log.debug("no upkeep: %s", e.message)
        else:
            _log.debug("upkeep: %d files joined, %d removed; the log begins at %s", done.joined, done.removed, tso.describe(done.start_ts))
        await asyncio.sleep(MAINTAIN_EVERY)


def keeps(key: bytes) -> bool:
    """Return whether the schema stream keeps a key: rows of DDL jobs, and the meta keys that schemas depend on."""
    return key.startswith(b"t") or meta_filter(key)
