"""Deliveries of a log for tests: settings of a changefeed, and a batch driver that is wired as in a changefeed."""

from __future__ import annotations

import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC
from pathlib import Path

from tests.support.changelog.logs import START
from tests.support.delivery.saved import saved, saving
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader
from tidemill.config.file import parse_config
from tidemill.delivery.batch import BatchDriver, JobRunner
from tidemill.delivery.clock import Clock
from tidemill.delivery.epoch_fence import Fence
from tidemill.delivery.inputs.log_heads import heads_of
from tidemill.delivery.inputs.log_source import LogSource
from tidemill.delivery.inputs.table_pack import PackStore
from tidemill.delivery.inputs.table_router import Settings, SinkEvents, TableRouter
from tidemill.delivery.loop import deliver
from tidemill.delivery.machine.actions import Report
from tidemill.delivery.machine.retry import RetryPolicy
from tidemill.delivery.position import Position
from tidemill.sinks.spec import open_driver_sink


def settings(path: Path, *, partitions: int = 1, mode: str = "default", more: str = "", toml: str = "") -> Settings:
    """Into a file of messages."""
    return settings_of(f"messages://{path}?protocol=open-protocol&partition-num={partitions}{more}", mode=mode, toml=toml)


def settings_of(uri: str, *, mode: str = "index-value", toml: str = "", feed: str = "test") -> Settings:
    """Into a sink; all tables are dispatched by `mode`."""
    text = toml + f'\n[[sink.dispatchers]]\nmatcher = ["*.*"]\npartition = "{mode}"\n'
    assert tomllib.loads(text)
    config = parse_config(text)
    return Settings(feed, config.sink_uri(uri), config, UTC)


@contextmanager
def batch_driver(
    folder: Path, log: str, runner: JobRunner, *, partitions: int = 2, at: int = START, retry: RetryPolicy | None = None
) -> Iterator[BatchDriver]:
    """A batch driver on a log, into FOLDER/out."""
    chosen = settings(folder / "out", partitions=partitions, mode="index-value")
    sink = open_driver_sink(chosen.sink.text)
    router = TableRouter(chosen)
    packs = PackStore(folder / "packs", chosen.output, router.table, lambda t: sink.ensure_topics(set(t)), [chosen.sink.topic])
    reader = LogReader(log)
    source = LogSource(reader, load_history(reader, from_ts=at), packs, router.ddl)
    events, fence = SinkEvents(chosen, router, packs, sink), Fence.at(folder)
    try:
        yield BatchDriver("f", source, events, sink, chosen.sink.text, runner, fence, retry or RetryPolicy(), stop=threading.Event())
    finally:
        sink.close()


def clock_of(
    log: str, begin: Position, *, target_ts: int = 0, trigger_ms: int = 0, first_end: Position | None = None, by_table: bool = False
) -> Clock:
    """A clock on a log, as that of a changefeed which begins there."""
    reader = LogReader(log)
    history = load_history(reader, from_ts=begin.ts, may_stop=True)
    return Clock(reader, history, begin, target_ts=target_ts, trigger_s=trigger_ms / 1000, first_end=first_end, by_table=by_table)


def deliver_all(
    driver: BatchDriver, log: str, begin: Position, target_ts: int, save: Callable[[Report], None], *, by_table: bool = False
) -> bool:
    """Deliver as a changefeed does, up to the target (True) or until the driver's stop (False)."""
    clock = clock_of(log, begin, target_ts=target_ts, by_table=by_table)
    with ExitStack() as stack:
        heads = heads_of(stack, LogReader(log), clock, driver.stop)
        return deliver(driver, clock, heads, saved(begin), target_ts=target_ts, save=saving(save))
