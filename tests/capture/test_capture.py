"""Whole captures of the playground: every change once, in order, in its table's partition; through DDLs, region changes, crashes."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.capture.captures import (
    caught_up,
    compare,
    config,
    log_changes,
    partition_changes,
    running,
    stored_changes,
    until,
)
from tests.support.capture.loops import run
from tests.support.capture.progress import physical_ids
from tests.support.faults import disks
from tests.support.simulation.sessions import Mutation, churn, session
from tidemill.capture import worker
from tidemill.capture.tikv.feed import puller
from tidemill.capture.tikv.feed.base import Transport
from tidemill.changelog.feeds import register
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import open_storage
from tidemill.changelog.verify import verify
from tidemill.cli.changefeeds.status import summary
from tidemill.cli.main import main as cli
from tidemill.errors import ClusterMismatch, LogCorrupt, LogError, LogLocked, StartTsBeforeGc
from tidemill.playground.server import Playground
from tidemill.playground.store.cluster import CommitMode
from tidemill.playground.store.feed import FeedHub, FeedStream, Scan
from tidemill.tidb.keys import record_key
from tidemill.tso import SavedTs
from tidemill.wire import cdcpb_pb2 as cdcpb


@pytest.mark.parametrize("transport", Transport)
def test_a_session_with_every_ddl(tmp_path: Path, transport: Transport) -> None:
    """Tables appear, are truncated, exchanged, reorganized and dropped while they are written, and regions change."""

    async def main() -> None:
        snapshot, transactions = session()
        random_ = random.Random(1)
        async with Playground(1, stores=3, resolved_interval=0.1) as playground:
            playground.cluster.transact(snapshot)
            async with running(config(playground, tmp_path / "log", transport=transport)) as capture:
                for i, mutations in enumerate(transactions):
                    mode = random_.choice((CommitMode.TWO_PHASE, CommitMode.ONE_PHASE))
                    ts = playground.cluster.transact(mutations, mode)
                    if i % 7 == 0:
                        await asyncio.sleep(0.01)
                    if i % 5 == 0:
                        churn(playground, random_)
                await caught_up(capture, ts)
            n, history = compare(playground.cluster, tmp_path / "log")
            assert n > 180
            assert len(history.ddl_events(history.start_ts, history.resolved_ts)) > 40
        report = verify(tmp_path / "log")
        assert report.is_whole, report

    run(main())


def test_no_change_is_lost_when_a_capture_is_stopped_and_started_again(tmp_path: Path) -> None:
    """Restart in the middle of the session, several times, with another transport; the capture catches up."""

    async def main() -> None:
        snapshot, transactions = session()
        async with Playground(2, stores=2, resolved_interval=0.1) as playground:
            playground.cluster.transact(snapshot)
            parts = [transactions[at : at + 60] for at in range(0, len(transactions), 60)]
            for i, part in enumerate(parts):
                async with running(config(playground, tmp_path / "log", transport=list(Transport)[i % 2])) as capture:
                    for mutations in part[:30]:
                        ts = playground.cluster.transact(mutations)
                        await asyncio.sleep(0.002)
                    if i == len(parts) - 1:
                        await caught_up(capture, ts)
                for mutations in part[30:]:
                    ts = playground.cluster.transact(mutations)
            async with running(config(playground, tmp_path / "log")) as capture:
                await caught_up(capture, ts)
            assert compare(playground.cluster, tmp_path / "log")[0] > 180
        assert verify(tmp_path / "log").is_whole

    run(main())


@pytest.mark.slow
def test_kill_minus_nine_at_random_moments(tmp_path: Path) -> None:
    """The process is killed repeatedly; in the end the log verifies and holds every row once."""

    async def main() -> None:
        random_ = random.Random(int(os.environ.get("TIDEMILL_SEED", "9")))
        snapshot, transactions = session()
        async with Playground(3, stores=2, resolved_interval=0.05) as playground:
            playground.cluster.transact(snapshot)
            log = tmp_path / "log"
            command = [sys.executable, "-m", "tidemill.cli.main", "capture", "--pd", playground.pd_address, "--log", str(log)]
            command += ["--log-file", str(tmp_path / "capture.log")]
            status_file = tmp_path / "log.capture" / "status.json"

            def runs(pid: int) -> bool:
                return (
                    status_file.exists() and (status := json.loads(status_file.read_text()))["pid"] == pid and status["state"] == "running"
                )

            parts = [transactions[at : at + 250] for at in range(0, len(transactions), 250)]
            for part in parts:
                process = await asyncio.create_subprocess_exec(*command)
                try:
                    await until(lambda: runs(process.pid))  # noqa: B023
                    last = random_.randrange(len(part))
                    for i, mutations in enumerate(part):
                        ts = playground.cluster.transact(mutations)
                        if random_.random() < 0.1:
                            churn(playground, random_)
                        if i == last:
                            process.kill()
                        await asyncio.sleep(0.004)
                finally:
                    if process.returncode is None:
                        process.kill()
                    await process.wait()
            process = await asyncio.create_subprocess_exec(*command)
            await until(lambda: runs(process.pid) and LogReader(log).resolved_ts() >= ts)
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
            assert compare(playground.cluster, log)[0] > 180
            status = json.loads(status_file.read_text())
            assert (status["state"], status["error"]) == ("stopped", None)
        assert verify(log).is_whole

    run(main())


def test_a_table_that_was_made_in_a_segment_above_its_head_is_captured_at_the_next_start(tmp_path: Path) -> None:
    """A kill between the schema's segment and its head.json, with the rows behind both."""

    async def main() -> None:
        async with Playground(7, resolved_interval=0.05) as playground:
            playground.execute("create database d")
            playground.execute("create table d.old (id int primary key)")
            log = tmp_path / "log"
            async with running(config(playground, log, partitions=1)) as capture:
                playground.execute("insert into d.old values (1)")
                await caught_up(capture, playground.cluster.oracle.next())
            heads = {name: (log / name / "head.json").read_bytes() for name in ("schema", "rows/0")}
            async with running(config(playground, log)) as capture:
                playground.execute("create table d.new (id int primary key)")
                await caught_up(capture, playground.cluster.oracle.next())
            for segment in (log / "rows/0").glob("*.arrow"):  # rows have got no further than before
                if int(segment.name[21:41]) > int(json.loads(heads["rows/0"])["resolved_ts"]):
                    segment.unlink()
            for name, head in heads.items():
                (log / name / "head.json").write_bytes(head)
                (log / name / "synced.json").write_bytes(head)
            async with running(config(playground, log)) as capture:
                playground.execute("insert into d.new values (1), (2)")
                await caught_up(capture, playground.cluster.oracle.next())
            assert compare(playground.cluster, log)[0] == 3
        assert verify(log).is_whole

    run(main())


def test_a_new_table_filled_at_once_loses_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with Playground(4, resolved_interval=0.1) as playground:
            playground.execute("create database d")
            async with running(config(playground, tmp_path / "log", partitions=3)) as capture:
                for i in range(20):
                    playground.execute(f"create table d.t{i} (id int primary key, v varchar(20))")
                    playground.execute(f"insert into d.t{i} values (1, 'a'), (2, 'b')")
                    playground.execute(f"update d.t{i} set v = 'c' where id = 1")
                await caught_up(capture, playground.cluster.oracle.next())
                assert len(capture.spans) >= 20
            assert compare(playground.cluster, tmp_path / "log")[0] == 60
        assert {len(rows) > 0 for rows in log_changes(tmp_path / "log").values()} == {True}, "tables are spread"

    run(main())


def test_large_transactions_within_a_small_memory(tmp_path: Path) -> None:
    """Prewrites and waiting rows above their budgets go to disk."""

    async def main() -> None:
        async with Playground(5, resolved_interval=0.2) as playground:
            playground.execute("create database d; create table d.t (id int primary key, v varchar(200))")
            (table_id,) = physical_ids(playground, "d", "t")
            mutations: list[Mutation] = [(record_key(table_id, h), b"\x80\0\1\0\0\0\2\x08\0" + bytes([h % 251]) * 8) for h in range(20000)]
            settings = config(playground, tmp_path / "log", row_budget=300_000, prewrite_budget=300_000)
            async with running(settings) as capture:
                pending = playground.cluster.prewrite(mutations)
                await until(lambda: capture.receiver.prewrites.written > 0)
                playground.cluster.commit(pending)
                ts = playground.cluster.transact(mutations, CommitMode.ONE_PHASE)
                await caught_up(capture, ts)
                assert capture.receiver.stats.spilled_rows > 0
            assert compare(playground.cluster, tmp_path / "log")[0] == 40000

    run(main())


def test_the_gc_safe_point_is_held_before_the_first_row_and_follows_the_log(tmp_path: Path) -> None:
    async def main() -> None:
        async with Playground(6, resolved_interval=0.1) as playground:
            playground.execute("create database d; create table d.t (id int primary key)")
            async with running(config(playground, tmp_path / "log")) as capture:
                service = capture.safe_point.service_id
                first = capture.safe_point.safe_point
                assert first == capture.writer.identity.start_ts - 1
                await caught_up(capture, playground.cluster.oracle.next())
                await capture.safe_point.protect(capture.writer.resolved_ts)
                assert first < capture.safe_point.safe_point < capture.writer.resolved_ts
                held, least = await capture.pd.update_service_safe_point("other", 0, 0)
                assert (held, least) in ((service, capture.safe_point.safe_point), ("gc_worker", least))

    run(main())


def test_a_dropped_log_lets_garbage_collection_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        async with Playground(6, resolved_interval=0.1, gc_barriers=True) as playground:
            points, now = playground.cluster.safe_points, playground.cluster.oracle.next
            async with running(config(playground, tmp_path / "log")) as capture:
                started = capture.writer.identity.start_ts
                assert capture.status.as_dict()["gc_seconds_left"] > 0 or capture.safe_point.seconds_left > 0
            assert points.advance_gc(now()) >= started - 1, "the stopped capture's barrier holds"
            assert points.collected < now() - 1
            with pytest.raises(SystemExit, match="0"):
                await asyncio.to_thread(cli, ["log", "drop", str(tmp_path / "log"), "--pd", playground.pd_address])
            assert not (tmp_path / "log" / "log.json").exists()
            later = now()
            assert points.advance_gc(later) == later

    run(main())
    assert "PD no longer keeps history" in capsys.readouterr().out


def test_a_start_that_gc_has_passed_is_refused_before_anything_is_captured(tmp_path: Path) -> None:
    async def main() -> None:
        async with Playground(7) as playground:
            playground.execute("create database d")
            start = playground.cluster.oracle.next()
            await asyncio.sleep(0.05)
            playground.cluster.collect_garbage(1)
            with pytest.raises(StartTsBeforeGc, match=rf"{start} \(20.*UTC\).*below \d+ \(20.*UTC\)"):
                async with running(config(playground, tmp_path / "log", start_ts=str(start))):
                    pass
            assert not (tmp_path / "log" / "log.json").exists()

    run(main())


def test_what_a_log_is_not_for_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with Playground(8) as playground, Playground(9) as stranger:
            for one in (playground, stranger):
                one.execute("create database d")
            async with running(config(playground, tmp_path / "log", partitions=2)):
                with pytest.raises(LogLocked, match=str(os.getpid())):
                    async with running(config(playground, tmp_path / "log", data_dir=tmp_path / "second")):
                        pass
            with pytest.raises(ClusterMismatch, match=r"7300000000000000008.*7300000000000000009"):
                async with running(config(stranger, tmp_path / "log")):
                    pass
            with pytest.raises(LogError, match="partitions 2, not 3"):
                async with running(config(playground, tmp_path / "log", partitions=3)):
                    pass

    run(main())


@pytest.mark.parametrize("folder", ["schema", "rows/1"])
def test_a_head_in_the_future_of_the_cluster_is_refused(tmp_path: Path, folder: str) -> None:
    """If the capture continued, changes that are still to come would count as delivered."""

    async def main() -> None:
        async with Playground(8) as playground:
            playground.execute("create database d")
            async with running(config(playground, tmp_path / "log", partitions=2)):
                pass
            head = tmp_path / "log" / folder / "head.json"
            head.write_text(json.dumps({"resolved_ts": playground.cluster.oracle.next() + (1 << 40)}))
            before = head.read_bytes()
            with pytest.raises(LogCorrupt, match=rf"{folder}/head\.json is complete up to .*in the cluster's future"):
                async with running(config(playground, tmp_path / "log")):
                    pass
            assert head.read_bytes() == before

    run(main())


def test_below_the_low_water_mark_the_capture_pauses_and_names_the_feed_that_pins_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with Playground(10, resolved_interval=0.1) as playground:
            playground.execute("create database d; create table d.t (id int primary key)")
            async with running(config(playground, tmp_path / "log")) as capture:
                await caught_up(capture, playground.cluster.oracle.next())
                start = capture.writer.identity.start_ts
            register(open_storage(tmp_path / "log"), "slow", SavedTs(start))
            async with running(config(playground, tmp_path / "log", low_water_bytes=1 << 60)) as capture:
                playground.execute("insert into d.t values (1)")
                at = playground.cluster.oracle.next()
                await until(lambda: "changefeed slow pins the log" in capture.receiver.withheld)
                await until(lambda: "changefeed slow pins the log" in capture.status.paused)
                assert capture.status.state == "running"
                assert capture.resolved_ts < at
                assert "paused     disk low" in "\n".join(summary(capture.status.as_dict()))
                capture.writer.options = replace(capture.writer.options, low_water_bytes=0)
                await caught_up(capture, playground.cluster.oracle.next())
                await until(lambda: not capture.status.paused)
            assert compare(playground.cluster, tmp_path / "log")[0] == 1
        text = " ".join(record.getMessage() for record in caplog.records if record.name.startswith("tidemill"))
        assert text.count("the capture pauses: disk low") == 1
        assert "the capture goes on" in text

    with caplog.at_level("INFO"):
        run(main())


def test_a_capture_that_pauses_can_be_stopped_and_goes_on_later(tmp_path: Path) -> None:
    async def main() -> None:
        async with Playground(10, resolved_interval=0.1) as playground:
            playground.execute("create database d; create table d.t (id int primary key)")
            async with running(config(playground, tmp_path / "log")) as capture:
                await caught_up(capture, playground.cluster.oracle.next())
            async with running(config(playground, tmp_path / "log", low_water_bytes=1 << 60)) as capture:
                playground.execute("insert into d.t values (1)")
                await until(lambda: bool(capture.receiver.withheld))
            async with running(config(playground, tmp_path / "log")) as capture:
                await caught_up(capture, playground.cluster.oracle.next())
            assert compare(playground.cluster, tmp_path / "log")[0] == 1

    run(main())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with disks.small_disk(tmp_path / "small", "16m") as place:
        yield place


@pytest.mark.slow
@pytest.mark.parametrize(
    "low_water", [0, pytest.param(8 << 20, marks=pytest.mark.thorough("a full disk, and a pause at the mark, have tests"))]
)
def test_a_disk_that_fills_up_pauses_the_capture_until_the_changefeed_has_drained(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, low_water: int
) -> None:
    """With a low-water mark, and without one, until the disk is completely full."""
    monkeypatch.setattr(worker, "MAINTAIN_EVERY", 0.2)
    monkeypatch.setattr("tidemill.capture.capture.STATUS_EVERY", 0.1)
    log = small_disk / "log"

    async def main() -> None:
        async with Playground(10, resolved_interval=0.1) as playground:
            playground.execute("create database d; create table d.t (id int primary key, v mediumblob)")
            settings = config(playground, log, low_water_bytes=low_water, retention_ms=1, partitions=2)
            async with running(settings) as capture:
                capture.writer.options = replace(capture.writer.options, grace_s=0.0)
                feed = open_storage(log)
                registration = register(feed, "slow", SavedTs(capture.writer.identity.start_ts))
                delivered: list[Any] = []
                start = done = capture.writer.identity.start_ts
                inserted = 0

                def drain() -> None:
                    """Do what a changefeed does: read what is complete, and save the checkpoint."""
                    nonlocal done
                    reader = LogReader(log)
                    head = reader.resolved_ts()
                    if head > done:
                        for p in range(2):
                            delivered.extend(partition_changes(reader, p, done, head))
                        done = head
                        registration.update(SavedTs(head))

                for _ in range(2):
                    while not capture.status.paused:
                        playground.execute(f"insert into d.t values ({inserted}, repeat('x', 400000))")
                        inserted += 1
                        await asyncio.sleep(0.05)
                    assert not low_water or "changefeed slow pins the log" in capture.status.paused
                    playground.execute(f"insert into d.t values ({inserted}, 'while it pauses')")
                    inserted += 1
                    at = playground.cluster.oracle.next()
                    while done < at:
                        await asyncio.to_thread(drain)
                        await asyncio.sleep(0.05)
                    await until(lambda: not capture.status.paused)
                assert capture.resolved_ts >= done
                assert capture.writer.identity.start_ts > start, "retention made the room"
                wanted = list(stored_changes(playground.cluster, start, done))
                assert len(wanted) == inserted
                assert sorted(delivered, key=str) == sorted(wanted, key=str)

    run(main())


def test_a_store_that_is_gone_for_a_while_costs_nothing_but_time(tmp_path: Path) -> None:
    """All streams break, again and again; PD stays."""

    async def main() -> None:
        snapshot, transactions = session()
        async with Playground(11, resolved_interval=0.1) as playground:
            playground.cluster.transact(snapshot)
            async with running(config(playground, tmp_path / "log")) as capture:
                for i, mutations in enumerate(transactions[:120]):
                    ts = playground.cluster.transact(mutations)
                    if i % 20 == 10:
                        for feed in list(capture.puller._feeds.values()):
                            feed.cancel()
                    await asyncio.sleep(0.005)
                await caught_up(capture, ts)
                assert capture.status.state == "running"
            assert compare(playground.cluster, tmp_path / "log")[0] > 20

    run(main())


@pytest.mark.parametrize(("close_ms", "priority"), [(puller.CLOSE_MS, cdcpb.SCAN_PRIORITY_HIGH), (-(10**9), cdcpb.SCAN_PRIORITY_LOW)])
def test_each_subscription_says_how_urgent_its_scan_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, close_ms: int, priority: int
) -> None:
    monkeypatch.setattr(puller, "CLOSE_MS", close_ms)
    asked: list[cdcpb.ChangeDataRequest] = []
    answer = FeedHub.request

    def note(hub: FeedHub, stream: FeedStream, request: cdcpb.ChangeDataRequest) -> Scan | None:
        asked.append(request)
        return answer(hub, stream, request)

    monkeypatch.setattr(FeedHub, "request", note)

    async def main() -> None:
        async with Playground(1, resolved_interval=0.05) as playground:
            playground.execute("create table t (id int primary key)")
            async with running(config(playground, tmp_path / "log")) as capture:
                await caught_up(capture, playground.execute("insert into t values (6)").commit_ts)

    run(main())
    assert {request.scan_priority for request in asked if request.WhichOneof("request") != "deregister"} == {priority}


def test_lock_only_commits_end_no_subscription(tmp_path: Path) -> None:
    """SELECT ... FOR UPDATE in a region that is subscribed whole: TiKV sends an empty row for it."""

    async def main() -> None:
        async with Playground(1, resolved_interval=0.05) as playground:
            playground.execute("create table t (id int primary key, v int); insert into t values (5, 5), (50, 50)")
            playground.execute("split table t by (3), (7)")
            async with running(config(playground, tmp_path / "log")) as capture:
                await caught_up(capture, playground.execute("insert into t values (6, 6)").commit_ts)
                scans = dict(capture.status.region_errors)
                for _ in range(5):
                    ts = playground.execute("begin; select * from t where id = 5 for update; commit").commit_ts
                    await caught_up(capture, ts)
                await caught_up(capture, playground.execute("update t set v = 6 where id = 5").commit_ts)
                await until(lambda: capture.status.lock_only_rows >= 5)
                assert (capture.status.violations, capture.status.region_errors) == ({}, scans)
                assert capture.status.skipped_rows == 0
            compare(playground.cluster, tmp_path / "log")

    run(main())
