"""A process dies in, or just behind, the first batch after an empty interval that was passed over: the next one finds that batch again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.saved import saved
from tests.support.servers.mariadb import MariaDb
from tidemill.changefeed.feed_folder import FeedFolder
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader
from tidemill.config.file import parse_config
from tidemill.delivery.batch import BatchDriver
from tidemill.delivery.build import Delivery
from tidemill.delivery.epoch_fence import Fence
from tidemill.delivery.inputs.log_source import next_end
from tidemill.delivery.inputs.table_router import Settings
from tidemill.delivery.machine.actions import Report
from tidemill.delivery.machine.batch_machine import under_way
from tidemill.delivery.machine.retry import RetryPolicy
from tidemill.delivery.position import Position, SavedPosition
from tidemill.sinks.mysql import lanes
from tidemill.spark.local import LocalRunner

pytestmark = pytest.mark.slow


class Killed(BaseException):
    """The process dies."""


@dataclass
class Feed:
    """A changefeed that one process after the other delivers."""

    folder: Path
    log: str
    uri: str
    dies_after: int | None = None
    """The process dies before it makes a later ts than this durable."""

    @contextmanager
    def process(self) -> Iterator[tuple[BatchDriver, SavedPosition, Callable[..., int]]]:
        """Yield a driver, the checkpoint where it begins, and what gives the end of the batch after a ts."""
        config = parse_config("force-replicate = true\n")
        reader = LogReader(self.log)
        settings = Settings("f", config.sink_uri(self.uri), config, UTC).of_cluster(reader.identity.cluster_id)
        folder = FeedFolder(self.folder / "data", "f")
        with ExitStack() as stack:
            delivery = Delivery.open(stack, settings, threading.Event())
            history = load_history(reader)
            fence = Fence(reader.storage, "fences/f.json", floor=folder.last_epoch())
            folder.claim(fence.driver, fence.take())
            at = folder.position() or saved(Position(reader.start_ts))
            packs = delivery.packs(folder.packs)
            retry = RetryPolicy(first_s=0.01, longest_s=0.02, total_s=2)
            driver = delivery.driver(packs, delivery.source(reader, history, packs), LocalRunner(), fence, retry, started_ts=1)
            planned = under_way(at, fence.planned, fence.planned_ranges)

            def end_after(ts: int, limit: int = 0) -> int:
                if planned is not None and ts == at.ts:
                    return planned.ts
                return next_end(reader, history, ts, limit or reader.resolved_ts())

            def save(report: Report) -> SavedPosition:
                if self.dies_after is not None and report.to_ts > self.dies_after:
                    raise Killed
                return folder.save_checkpoint(report.to_ts)

            driver.keep_checkpoint(at, None, save)
            yield driver, at, end_after

    def first(self, done: int, empty: int) -> None:
        """Deliver up to `done`, pass (done, empty] over, and begin the batch behind it."""
        with suppress(Killed), self.process() as (driver, at, end_after):
            ts, number = at.ts, 0
            while ts < done:
                end = end_after(ts, done)
                driver.deliver(number, Position(ts), Position(end))
                ts, number = end, number + 1
            assert driver.pass_over(number, Position(done), Position(empty)) is not None
            driver.deliver(number + 1, Position(empty), Position(end_after(empty)))
            pytest.fail("it was to die")

    def second(self) -> None:
        """Another process goes on, to the log's end."""
        self.dies_after = None
        with self.process() as (driver, at, end_after):
            ts, end = at.ts, LogReader(self.log).resolved_ts()
            while ts < end:
                to_ts = end_after(ts)
                driver.deliver(0, Position(ts), Position(to_ts))
                ts = to_ts


def made(folder: Path, db: MariaDb, before: tuple[str, ...], after: tuple[str, ...], query: str = "") -> tuple[Feed, int, int]:
    db.clear()
    db.run("CREATE DATABASE app")
    sql = SqlLog()
    done, empty = sql.run(*before), sql.run()
    sql.run(*after)
    return Feed(folder, sql.write(folder / "log"), db.uri + query), done, empty


def test_transactions_are_applied_once(tmp_path: Path, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of four are in the database when it dies. A reader sees neither values nor the checkpoint go back."""
    before = ("create table h (n bigint)", "create table r (k int primary key, v int)", "insert into r values (1, 0)")
    after = tuple(
        text for n in range(4) for text in ("begin", f"insert into h values ({n})", f"update r set v = {n + 1} where k = 1", "commit")
    )
    feed, done, empty = made(tmp_path, mariadb, before, after, "?transaction-atomicity=global&max-txn-row=1")
    once, left, seen = lanes.Lane._once, [0], list[tuple[int, int]]()

    def counted(*args: Any, **given: Any) -> None:
        once(*args, **given)
        seen.append((mariadb.rows("select v from app.r")[0][0], mariadb.rows("select checkpoint_ts from tidb_cdc.tidemill_feed_v1")[0][0]))
        if seen[-1][0] == left[0]:
            raise Killed

    monkeypatch.setattr(lanes.Lane, "_once", counted)
    left[0] = 2
    feed.first(done, empty)
    left[0] = -1
    feed.second()
    assert sorted(n for (n,) in mariadb.rows("select n from app.h")) == [0, 1, 2, 3]
    assert seen == sorted(seen), "nothing moves back"


@pytest.mark.parametrize("ddl", ["rename table t to u", "drop table t", "alter table t drop column v"])
def test_a_ddl_that_ran_is_known(tmp_path: Path, mariadb: MariaDb, ddl: str) -> None:
    """It dies behind the DDL, before the checkpoint: the rows ahead of the DDL are not written again, into what is not there any more."""
    before = ("create table t (k int primary key, v int)", "insert into t values (1, 0)")
    feed, done, empty = made(tmp_path, mariadb, before, ("insert into t values (2, 2)", ddl))
    feed.dies_after = empty
    feed.first(done, empty)
    feed.second()
    tables = {name for (name,) in mariadb.rows("show tables from app")}
    assert tables == {"rename table t to u": {"u"}, "drop table t": set()}.get(ddl, {"t"})
    if tables:
        assert sorted(k for (k, *_) in mariadb.rows(f"select * from app.{min(tables)}")) == [1, 2]
