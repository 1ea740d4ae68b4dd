"""Replay: deliver what a log holds, from one ts to another, then end. It needs no upstream and keeps no state. While it runs the log has a
feed of it, so that retention does not pass it, and on a cluster a fence; nothing of that stays."""

from __future__ import annotations

import os
import tempfile
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.changelog import feeds, log_format
from tidemill.changelog.files.bounds import begin_of_changes, first_ts, within
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import LocalStorage
from tidemill.delivery.build import Delivery
from tidemill.delivery.epoch_fence import Fence
from tidemill.delivery.inputs.log_source import next_end
from tidemill.delivery.inputs.table_router import Settings
from tidemill.delivery.machine.actions import Report
from tidemill.delivery.machine.retry import RetryPolicy
from tidemill.errors import StartTsOutOfLog, redact
from tidemill.process.places import is_in_process
from tidemill.spark.local import EitherRunner
from tidemill.tso import describe

if TYPE_CHECKING:
    from tidemill.spark.jobs import SparkRunner

RETRY = RetryPolicy(total_s=60)


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a changefeed's delivery stood: its newest epoch, and the end of the interval that it had begun."""

    epoch: int
    first_end: int | None = None


@dataclass(slots=True)
class Delivered:
    """What a replay delivered, all batches together."""

    from_ts: int
    to_ts: int
    batches: int = 0
    rows: int = 0
    messages: int = 0
    ddls: int = 0
    skipped_rows: int = 0

    def add(self, report: Report) -> None:
        """Count a batch."""
        self.batches += 1
        self.rows += report.stats.rows
        self.skipped_rows += report.stats.skipped_rows
        self.messages += report.stats.messages
        self.ddls += len(report.ddls)


def interval(reader: LogReader, start_ts: int | None, target_ts: int | None, *, created: bool = False) -> tuple[int, int]:
    """The interval (start, target] to replay; by default all of the log. Raises StartTsOutOfLog naming both ends of the log."""
    begin, resolved = first_ts(reader, created=created), reader.resolved_ts()
    start = begin if start_ts is None else start_ts
    target = resolved if target_ts is None else target_ts
    for name, ts in (("start-ts", start), ("target-ts", target)):
        if not begin <= ts <= resolved:
            raise StartTsOutOfLog(
                f"{name} {describe(ts)} lies outside the log {redact(reader.location)}, "
                f"which holds {describe(begin)} to {describe(resolved)}"
            )
    if target < start:
        raise StartTsOutOfLog(f"target-ts {describe(target)} lies before start-ts {describe(start)}")
    return start, target


def replay(
    log: str,
    settings: Settings,
    *,
    start_ts: int | None = None,
    target_ts: int | None = None,
    parallelism: int | None = None,
    master: str | None = None,
    spark_conf: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
    on_batch: Callable[[Report], None] = lambda report: None,
    resumed: Resumed | None = None,
    fence: Fence | None = None,
) -> Delivered:
    """Deliver the interval, in batches that end at each DDL. `resumed`: a changefeed's delivery goes on, instead of a new one. `fence`: is
    taken already; None: one that only this replay knows.

    Raises the errors of the log, the rows and the sink, Fenced.
    """
    reader = LogReader(log)
    settings = settings.of_cluster(reader.identity.cluster_id)
    start, target = interval(reader, start_ts, target_ts, created=settings.sink.create_tables)
    delivered = Delivered(start, target)
    with ExitStack() as stack:
        tell = stack.enter_context(feeds.replaying(reader.storage, begin_of_changes(reader, start)))
        begin = reader.start_ts
        history = load_history(reader, within(begin, target), from_ts=within(begin, start))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemill-replay-")))
        stop = stop or threading.Event()
        delivery = Delivery.open(stack, settings, stop, fresh=resumed is None)
        packs = delivery.packs(folder / "packs")
        runner = EitherRunner(lambda: _spark(stack, folder, master, settings.feed, spark_conf, stop), parallelism)
        fence = fence or _fence(stack, folder, master, reader, resumed.epoch if resumed is not None else 0)
        driver = delivery.driver(packs, delivery.source(reader, history, packs), runner, fence, RETRY, started_ts=target)
        at = start
        while True:
            end = next_end(reader, history, at, target, settings.sink.spec.ends_every_ms(settings.sink)) if at < target else target
            if resumed is not None and at == start and resumed.first_end is not None:
                end = resumed.first_end
            if end == at < target:
                raise StartTsOutOfLog(
                    f"the tables as of {describe(at + 1)} are not all in {redact(reader.location)} yet",
                    hint="Wait until the capture has read them, or replay from a later --start-ts.",
                )
            report = driver.run(delivered.batches, at, end)
            delivered.add(report)
            on_batch(report)
            at = end
            tell(begin_of_changes(reader, at))
            if at >= target or driver.stop.is_set():
                break
    delivered.to_ts = at
    return delivered


def _fence(stack: ExitStack, folder: Path, master: str | None, reader: LogReader, floor: int) -> Fence:
    """A fence in the replay's own folder. Executors of a cluster do not see that folder: there it lies beside the log."""
    if is_in_process(master):
        return Fence(LocalStorage(os.fspath(folder)), "epoch", floor=floor)
    name = f"{log_format.FENCES}/replay-{uuid.uuid4().hex}.json"
    stack.callback(_remove, reader, name)
    return Fence(reader.storage, name, floor=floor)


def _remove(reader: LogReader, name: str) -> None:
    for file in (name, f"{name}.lock"):
        reader.storage.delete(file)


def _spark(
    stack: ExitStack, folder: Path, master: str | None, feed: str, spark_conf: Mapping[str, str] | None, stop: threading.Event
) -> SparkRunner:
    """Start Spark, to be stopped at the end."""
    from tidemill.spark.jobs import SparkRunner
    from tidemill.spark.session import start_context, stop_spark

    context: Any = start_context(folder / "spark.log", master=master, name=f"tidemill replay {feed}", user=spark_conf)
    stack.callback(stop_spark, context)
    return SparkRunner(context, f"tidemill-{feed}", stop=stop)
