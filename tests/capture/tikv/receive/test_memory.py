"""Memory stays within its quota: for transactions of any size, for prewrites that stay uncommitted, and for slow disks."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.captures import caught_up, compare, config, running, until
from tests.support.eventfeeds import Row, committed, message, resolved
from tests.support.loops import run
from tidemill.capture.config import CaptureConfig, size_bytes
from tidemill.capture.tikv.feed.base import window_of
from tidemill.capture.tikv.receive.decode import Scanner
from tidemill.capture.tikv.receive.ingest import Event, Options, Receiver, ScanDone
from tidemill.capture.tikv.receive.matcher import FOREVER, Initialized, Matcher
from tidemill.capture.tikv.receive.memory import SLAB
from tidemill.capture.tikv.sort import runs
from tidemill.capture.tikv.sort.partition import PartitionLog
from tidemill.changelog.layout import LogIdentity
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import Draft, LocalStorage
from tidemill.changelog.writer import LogWriter
from tidemill.errors import ConfigError, DiskLow
from tidemill.kernels.receive.layout import COMMIT, COMMITTED, INITIALIZED, PREWRITE, PUT, ROLLBACK, X_COUNT
from tidemill.playground.server import Playground
from tidemill.tidb.keys import record_key

INIT = Row(type=INITIALIZED)


def prewrite(key: bytes, start: int, value: bytes) -> Row:
    return Row(type=PREWRITE, op_type=PUT, key=key, start_ts=start, value=value)


def commit(key: bytes, start: int, commit_ts: int) -> Row:
    return Row(type=COMMIT, op_type=PUT, key=key, start_ts=start, commit_ts=commit_ts)


def key(i: int) -> bytes:
    return b"t" + (i % 3 + (1 << 63)).to_bytes(8, "big") + b"_r" + i.to_bytes(8, "big")


def log_of(folder: Path) -> tuple[LogWriter, PartitionLog]:
    identity = LogIdentity(cluster_id="1", start_ts=10, partitions=1)
    writer = LogWriter.create(folder / "log", identity, snapshot={})
    scratch = folder / "scratch"
    scratch.mkdir()
    return writer, PartitionLog(writer.partition(0), scratch, slice_rows=8192)


@pytest.mark.parametrize("initialized_late", [False, True])
def test_a_transaction_ten_times_the_quota(tmp_path: Path, initialized_late: bool) -> None:
    """All prewrites come before the first commit, as TiKV sends them. Some are rolled back, and other transactions continue in between."""
    quota = 4 << 20
    rows = 40_000
    value = b"v" * 1000
    assert rows * len(value) >= 9 * quota
    writer, log = log_of(tmp_path)
    events: list[Event] = []
    options = Options.of_quota(quota)
    receiver = Receiver([log], tmp_path / "scratch", events.extend, options=options)
    receiver._next_seal = float("inf")
    receiver.place(1, 10, 0)
    receiver.subscribe(1, 0, 1, 7, 10, b"", b"", 0)
    most = [0, 0]

    def send(rows: Iterator[Row]) -> None:
        while batch := list(islice(rows, 500)):
            receiver.step([0], [message(1, 7, batch)])
            most[0] = max(most[0], receiver.matcher.prewrite_bytes())
            most[1] = max(most[1], receiver.matcher.row_bytes())

    if not initialized_late:
        receiver.step([0], [message(1, 7, [INIT])])
    send(prewrite(key(i), 100, value) for i in range(rows))
    send(row for i in range(50) for row in (prewrite(b"small%d" % i, 200 + i, b"w"), commit(b"small%d" % i, 200 + i, 300 + i)))
    if initialized_late:
        receiver.step([0], [message(1, 7, [INIT])])
    send(
        commit(key(i), 100, 500) if i % 10 else Row(type=ROLLBACK, key=key(i), start_ts=100) for i in range(rows)
    )  # a real transaction is rolled back as a whole; the matcher does not mind
    receiver.step([0], [resolved(1000, 7, 1)])
    receiver._finish_spills(wait_for=True)
    receiver._seal(force=True)
    receiver._finish_seals(wait=True)
    assert events == [ScanDone(1)]
    assert most[0] <= options.prewrite_budget + (1 << 20)
    assert most[1] <= options.row_budget + (1 << 20)
    assert receiver.prewrites.written >= rows * 0.8
    assert receiver.matcher.count(X_COUNT) == 0
    assert receiver.matcher.prewrite_bytes() == 0
    assert receiver.prewrites._runs == [], "the runs are gone with their last row"
    writer.close()
    reader = LogReader(tmp_path / "log")
    found: list[tuple[int, bytes, bytes]] = []
    for interval in reader.chain(0, 10, 1000):
        for path in interval.parts:
            table = reader.open_segment(path).read_all()
            found += zip(*(table[c].to_pylist() for c in ("commit_ts", "key", "value")), strict=True)
    small = [(300 + i, b"small%d" % i, b"w") for i in range(50)]
    assert found == small + sorted((500, key(i), value) for i in range(rows) if i % 10)


def test_prewrites_on_disk_go_with_their_subscription(tmp_path: Path) -> None:
    writer, log = log_of(tmp_path)
    receiver = Receiver([log], tmp_path / "scratch", lambda events: None, options=Options.of_quota(1 << 20))
    receiver._next_seal = float("inf")
    for sub_range in (1, 2):
        receiver.place(sub_range, 10, 0)
        receiver.subscribe(sub_range, 0, sub_range, 7, 10, b"", b"", 0)
        receiver.step([0], [message(sub_range, 7, [INIT])])
        for at in range(0, 2000, 100):
            receiver.step([0], [message(sub_range, 7, [prewrite(key(i), 100 + sub_range, b"v" * 500) for i in range(at, at + 100)])])
    receiver._finish_spills(wait_for=True)
    assert len(receiver.prewrites._runs) > 1
    for sub_range in (1, 2):
        receiver.drop([sub_range])
        receiver._seal()
        left = {int(s) for spilled in receiver.prewrites._runs for s in np.unique(spilled.run.rows["start_ts"])}
        assert left == ({102} if sub_range == 1 else set())
    receiver.matcher.sweep()
    assert receiver.matcher.chunks.held() == 0
    writer.close()


def test_one_stuck_prewrite_a_slab_does_not_keep_the_slab() -> None:
    """Some prewrites are never committed: the bytes in use are moved together and stay the same."""
    matcher = Matcher()
    scanner = Scanner(matcher.chunks)
    matcher.subscribe(0, 1, 7, 10)
    matcher.feed(scanner.scan([message(1, 7, [INIT])]))
    value = b"x" * 10_000
    for i in range(400):
        rows = [prewrite(b"stuck%06d" % i, 50 + i, b"kept%06d" % i)]
        for j in range(40):
            rows += [prewrite(b"k%d" % j, 1000 + i, value), commit(b"k%d" % j, 1000 + i, 2000 + i)]
        assert matcher.feed(scanner.scan([message(1, 7, rows)])) == []
        matcher.release(matcher.take(0, FOREVER))
    before = matcher.chunks.bytes
    assert before >= 8 * SLAB
    assert matcher.evacuate() >= 7
    assert matcher.chunks.bytes <= 3 * SLAB
    matcher.feed(scanner.scan([message(1, 7, [commit(b"stuck%06d" % i, 50 + i, 5000) for i in range(400)])]))
    rows = committed(matcher.pending_rows())
    assert sorted(rows) == [(5000, 50 + i, b"stuck%06d" % i, PUT, b"kept%06d" % i, b"") for i in range(400)]
    matcher.release(matcher.take(0, FOREVER))
    assert matcher.chunks.held() == 0


def test_waiting_rows_are_moved_as_well() -> None:
    matcher = Matcher(partitions=2)
    scanner = Scanner(matcher.chunks)
    sub = matcher.subscribe(0, 1, 7, 10, partition=1)
    want = []
    for i in range(3000):
        rows = [prewrite(b"a%06d" % i, 50 + i, b"v%d" % i), commit(b"a%06d" % i, 50 + i, 9000 + i)]
        rows += [prewrite(b"gone", 20_000 + i, b"y" * 12_000), Row(type=ROLLBACK, key=b"gone", start_ts=20_000 + i)]
        matcher.feed(scanner.scan([message(1, 7, rows)]))
        want.append((9000 + i, 50 + i, b"a%06d" % i, PUT, b"v%d" % i, b""))
    assert Initialized(sub) in matcher.feed(scanner.scan([message(1, 7, [INIT])]))
    assert matcher.chunks.bytes >= 2 * SLAB
    matcher.evacuate()
    assert matcher.chunks.bytes <= 2 * SLAB
    assert sorted(committed(matcher.pending_rows(1))) == want


def test_a_slow_disk_stops_neither_the_reader_nor_the_streams(tmp_path: Path) -> None:
    """The seal hangs while much more comes than the inbox holds: the streams survive, and then everything is there."""

    async def main() -> None:
        async with Playground(21, stores=1, resolved_interval=0.1) as playground:
            playground.execute("create table t (id int primary key, v longtext)")
            (table,) = [t for t in playground.database.catalog.tables.values() if t.name == "t"]
            async with running(config(playground, tmp_path / "log", memory_quota=64 << 20)) as capture:
                await caught_up(capture, playground.cluster.oracle.next())
                hung, go_on = threading.Event(), threading.Event()
                streams = set(playground.cluster.feeds.streams)
                for one in capture.receiver.logs:
                    seal = one.seal

                    def slow(rows: Any, to_ts: int, seal: Any = seal) -> Any:
                        hung.set()
                        go_on.wait()
                        return seal(rows, to_ts)

                    one.seal = slow  # type: ignore[method-assign]
                try:
                    await until(hung.is_set)
                    for i in range(60):
                        playground.cluster.transact([(record_key(table.model.id, i), b"x" * 1_000_000)])
                        await asyncio.sleep(0)
                    assert await capture.pd.tso() > 0, "the loop goes on"
                    assert set(playground.cluster.feeds.streams) == streams
                    assert capture.receiver.inbox.bytes <= capture.receiver.inbox.high + (32 << 20)
                finally:
                    go_on.set()
                await caught_up(capture, playground.cluster.oracle.next())
                assert set(playground.cluster.feeds.streams) == streams
            assert compare(playground.cluster, tmp_path / "log")[0] >= 60

    run(main())


class HungDisk:
    """Scratch files whose writing waits for an event."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on, self.waits = threading.Event(), threading.Event()
        write = runs._Scratch.write

        def hung(scratch: runs._Scratch, data: memoryview, at: int) -> None:
            self.waits.set()
            assert self.go_on.wait(60)
            write(scratch, data, at)

        monkeypatch.setattr(runs._Scratch, "write", hung)


def two_pieces(folder: Path, options: Options) -> tuple[LogWriter, Receiver, list[int]]:
    """A receiver of two partitions, each with a sub-range whose scan is complete; and the partitions as they are sealed."""
    writer = LogWriter.create(folder / "log", LogIdentity(cluster_id="1", start_ts=10, partitions=2), snapshot={})
    scratch = folder / "scratch"
    scratch.mkdir()
    sealed: list[int] = []
    logs = [PartitionLog(writer.partition(p), scratch) for p in range(2)]
    receiver = Receiver(logs, scratch, lambda events: None, lambda p, done: sealed.append(p), options=options)
    for sub_range in (0, 1):
        receiver.place(sub_range, 10, sub_range)
        receiver.subscribe(sub_range, 0, sub_range + 1, 7, 10, b"", b"", sub_range)
        receiver.step([0], [message(sub_range + 1, 7, [INIT])])
    return writer, receiver, sealed


def stored(folder: Path, partition: int) -> list[tuple[int, bytes]]:
    reader = LogReader(folder / "log")
    found: list[tuple[int, bytes]] = []
    for interval in reader.chain(partition, 10, reader.head(partition)):
        for path in interval.parts:
            table = reader.open_segment(path).read_all()
            found += zip(table["commit_ts"].to_pylist(), table["key"].to_pylist(), strict=True)
    return found


@pytest.mark.parametrize("what", ["rows", "prewrites"])
def test_ingesting_goes_on_while_the_disk_of_scratch_files_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Sub-range 0 has more than fits into memory. Sub-range 1 stays live: its rows are taken, its resolved ts advances, its partition is
    sealed."""
    disk = HungDisk(monkeypatch)
    quota = 8 << 20
    writer, receiver, sealed = two_pieces(tmp_path, Options.of_quota(quota))
    value, many = b"v" * 1000, 5000
    assert many * len(value) > receiver.options.row_budget > receiver.options.prewrite_budget

    def row(i: int) -> Row:
        if what == "prewrites":
            return prewrite(key(i), 100, value)
        return Row(type=COMMITTED, op_type=PUT, key=key(i), start_ts=100, commit_ts=200, value=value)

    for at in range(0, many, 250):
        receiver.step([0], [message(1, 7, [row(i) for i in range(at, at + 250)])])
    assert disk.waits.wait(60)
    assert receiver.matcher.row_bytes() <= receiver.options.row_budget
    assert receiver.matcher.prewrite_bytes() <= receiver.options.prewrite_budget
    receiver.step([0], [message(2, 7, [prewrite(b"live", 300, b"w"), commit(b"live", 300, 400)])])
    receiver.step([0], [resolved(500, 7, 2)])
    if what == "prewrites":  # a COMMIT whose prewrite is on its way to disk: its partition is not complete before it is there
        receiver.step([0, 0], [message(1, 7, [commit(key(i), 100, 450) for i in range(many)]), resolved(500, 7, 1)])
        receiver._next_seal = 0.0
        receiver.step([], [])
        receiver._finish_seals(wait=True)
        assert receiver.logs[0].head == 449, "what lies below the COMMITs that wait is complete"
    receiver._next_seal = 0.0
    receiver.step([], [])
    receiver._finish_seals(wait=True)
    assert 1 in sealed
    assert receiver.logs[1].head == 500
    assert receiver.logs[0].head < 450
    assert stored(tmp_path, 1) == [(400, b"live")]
    disk.go_on.set()
    receiver.step([0, 0], [resolved(600, 7, 1), resolved(600, 7, 2)])
    receiver._finish_spills(wait_for=True)
    receiver._seal(force=True)
    receiver._finish_seals(wait=True)
    assert [receiver.logs[p].head for p in range(2)] == [600, 600]
    assert stored(tmp_path, 0) == sorted((200 if what == "rows" else 450, key(i)) for i in range(many))
    assert receiver.stats.violations == 0
    receiver.stop()
    writer.close()


def test_a_long_scan_of_one_table_holds_nobody_elses_watermark(tmp_path: Path) -> None:
    """Sub-range 0 scans many times the quota and is not done. After each of its batches sub-range 1 is complete up to the store's resolved
    ts."""
    writer, receiver, _ = two_pieces(tmp_path, Options.of_quota(4 << 20))
    receiver.place(2, 10, 0)
    receiver.subscribe(2, 0, 3, 7, 10, b"", b"", 0)  # not initialized: its partition is held
    value, rounds = b"v" * 2000, 40
    for i in range(1, rounds + 1):
        scanned = [Row(type=COMMITTED, op_type=PUT, key=key(i * 1000 + n), start_ts=100, commit_ts=200, value=value) for n in range(250)]
        live = [prewrite(b"live%d" % i, 1000 * i, b"w"), commit(b"live%d" % i, 1000 * i, 1000 * i + 1)]
        receiver.step([0, 0, 0], [message(3, 7, scanned), message(2, 7, live), resolved(1000 * i + 5, 7, 2)])
        receiver._next_seal = 0.0
        receiver.step([], [])
        receiver._finish_seals(wait=True)
        assert receiver.logs[1].head == 1000 * i + 5
        assert receiver.matcher.row_bytes() <= receiver.options.row_budget
    assert receiver.logs[0].head == 10
    assert receiver.stats.spilled_rows > 0
    assert [ts for ts, _ in stored(tmp_path, 1)] == [1000 * i + 1 for i in range(1, rounds + 1)]
    receiver.step([0, 0], [message(3, 7, [INIT]), resolved(50_000, 7, 1, 3)])
    receiver._finish_spills(wait_for=True)
    receiver._seal(force=True)
    receiver._finish_seals(wait=True)
    assert len(stored(tmp_path, 0)) == rounds * 250
    receiver.stop()
    writer.close()


def test_a_disk_that_hangs_for_long_stops_the_reading_and_memory_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the quota nothing more is taken from the inbox: it fills, and the streams are not read until the disk is back."""
    disk = HungDisk(monkeypatch)
    quota = 64 << 20
    writer, receiver, _ = two_pieces(tmp_path, Options.of_quota(quota))
    value = b"v" * 10_000
    resumed = threading.Event()
    receiver.start()
    sent, room = 0, True
    try:
        while room:
            rows = [Row(type=COMMITTED, op_type=PUT, key=key(i), start_ts=100, commit_ts=200, value=value) for i in range(sent, sent + 20)]
            room = receiver.inbox.put(0, message(1, 7, rows))
            sent += 20
            if not room:  # is it only late, or does it take nothing more?
                drained = threading.Event()
                receiver.inbox.when_room(drained.set)
                while not drained.wait(0.05) and not receiver.full:
                    pass
                room = drained.is_set()
        assert disk.waits.wait(60)
        assert receiver.full
        assert receiver.matcher.memory() <= quota + 2 * SLAB, "slabs are given out whole"
        assert sent * len(value) > quota // 2
        receiver.inbox.when_room(resumed.set)
        assert not resumed.is_set()
        called = threading.Event()
        receiver.call(called.set)
        assert called.wait(60), "what the event loop asks for is done all the same"
        disk.go_on.set()
        assert resumed.wait(60)
        receiver.inbox.put(0, resolved(300, 7, 1))
        receiver.inbox.put(0, resolved(300, 7, 2))
    finally:
        disk.go_on.set()
        receiver.stop()
    assert receiver.failure is None
    assert len(stored(tmp_path, 0)) == sent
    writer.close()


@pytest.mark.parametrize(("what", "number"), [("rows", 28), ("prewrites", 28), ("rows", 5), ("prewrites", 116)])  # no room, EIO, ESTALE
def test_a_disk_of_scratch_files_that_is_full_or_away_stops_the_reading_until_it_takes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, number: int
) -> None:
    """What was to be spilled stays in memory. Nothing is lost, and no file keeps unneeded disk space."""
    room = False
    written = runs._Scratch.write

    def full(scratch: runs._Scratch, data: memoryview, at: int) -> None:
        if not room:
            written(scratch, data[: len(data) // 2], at)
            raise OSError(number, os.strerror(number))
        written(scratch, data, at)

    monkeypatch.setattr(runs._Scratch, "write", full)
    writer, receiver, _ = two_pieces(tmp_path, Options.of_quota(4 << 20))
    value, many = b"v" * 10_000, 0
    while not receiver.full:
        if what == "prewrites":
            receiver.step([0], [message(1, 7, [prewrite(key(many), 100, value)])])
        else:
            receiver.step([0], [message(1, 7, [Row(type=COMMITTED, op_type=PUT, key=key(many), start_ts=100, commit_ts=200, value=value)])])
        many += 1
    receiver.workers.wait(receiver._on_the_way())
    assert os.strerror(number) in receiver.withheld
    for _ in range(3):
        receiver._spill_again_at = 0.0
        receiver._finish_spills()
        receiver.workers.wait(receiver._on_the_way())
    assert receiver.full
    assert receiver.matcher.memory() <= (4 << 20) + 2 * SLAB
    assert str(tmp_path / "scratch") not in Path("/proc/self/maps").read_text()
    room = True
    receiver._spill_again_at = 0.0
    receiver._finish_spills()
    receiver._finish_spills(wait_for=True)
    assert (receiver.withheld, receiver.withholds) == ("", False)
    if what == "prewrites":
        receiver.step([0], [message(1, 7, [commit(key(i), 100, 200) for i in range(many)])])
    receiver.step([0, 0], [resolved(600, 7, 1), resolved(600, 7, 2)])
    receiver._finish_spills(wait_for=True)
    receiver._seal(force=True)
    receiver._finish_seals(wait=True)
    assert receiver.failure is None
    assert stored(tmp_path, 0) == sorted((200, key(i)) for i in range(many))
    receiver.stop()
    writer.close()


def test_another_error_of_the_disk_ends_the_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(scratch: runs._Scratch, data: memoryview, at: int) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(runs._Scratch, "write", broken)
    writer, receiver, _ = two_pieces(tmp_path, Options.of_quota(4 << 20))
    failed = threading.Event()
    receiver._on_failure = lambda error: failed.set()
    receiver.start()
    for i in range(400):
        receiver.inbox.put(0, message(1, 7, [prewrite(key(i), 100, b"v" * 10_000)]))
    assert failed.wait(60)
    assert isinstance(receiver.failure, OSError)
    receiver.stop()
    writer.close()


class NoRoom(LocalStorage):
    """A disk that takes this many more files of a kind, and then no more until it is told."""

    drafts = heads = 1 << 30

    def draft(self, folder: str) -> Draft:
        self.drafts -= 1
        if self.drafts < 0:
            raise DiskLow("no room for a segment")
        return super().draft(folder)

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        if name.endswith("head.json"):
            self.heads -= 1
            if self.heads < 0:
                raise DiskLow("no room for a head")
        super().replace(name, data, durable=durable)


@pytest.mark.parametrize("seed", range(12))
def test_a_seal_without_room_is_tried_again_and_nothing_is_lost_or_twice(tmp_path: Path, seed: int) -> None:
    """Segments or heads, whichever finds no disk space first: in a small seal, in a big one of many segments, with and without runs on
    disk."""
    rng = random.Random(seed)
    place = NoRoom(tmp_path / "log", sync=False)
    writer = LogWriter.create(place, LogIdentity(cluster_id="1", start_ts=10, partitions=1), snapshot={})
    log = PartitionLog(writer.partition(0), tmp_path, segment_bytes=rng.choice((2_000, 1 << 30)), slice_rows=rng.choice((10, 100_000)))
    receiver = Receiver([log], tmp_path, lambda events: None, options=Options.of_quota(rng.choice((64 << 10, 8 << 20))))
    now = 0.0
    receiver.workers.now = lambda: now  # type: ignore[method-assign]
    receiver.place(0, 10, 0)
    receiver.subscribe(0, 0, 1, 7, 10, b"", b"", 0)
    receiver.step([0], [message(1, 7, [INIT])])
    wanted: list[tuple[int, bytes]] = []
    refused = 0
    for window in range(8):
        begin = 1000 * (window + 1)
        sent = sorted((begin + rng.randrange(900), key(1000 * window + i)) for i in range(rng.choice((0, 5, 200))))
        rows = [Row(type=COMMITTED, op_type=PUT, key=k, start_ts=ts - 1, commit_ts=ts, value=b"v" * 100) for ts, k in sent]
        for at in range(0, len(rows), 20):
            receiver.step([0], [message(1, 7, rows[at : at + 20])])
        receiver._finish_spills(wait_for=True)
        place.drafts, place.heads = rng.choice((0, 1, 3, 1 << 30)), rng.choice((0, 1, 2, 1 << 30))
        receiver.step([0], [resolved(begin + 950, 7, 1)])
        wanted += sent
        while log.head < begin + 950:
            receiver._seal()
            receiver.workers.wait(receiver._sealing.futures())
            receiver._finish_seals()
            if receiver.withheld:
                refused += 1
                assert receiver.withholds
                found = stored(tmp_path, 0)
                assert found == wanted[: len(found)]
                if rng.random() < 0.7:
                    place.drafts, place.heads = rng.choice((0, 1, 2, 1 << 30)), rng.choice((0, 1, 1 << 30))
                now += 2.0
        assert stored(tmp_path, 0) == wanted
        now += 1.0
    assert refused
    assert receiver.stats.sealed_rows == len(wanted)
    place.drafts = place.heads = 1 << 30
    receiver.stop()
    assert receiver.failure is None
    writer.close()
    assert LogReader(tmp_path / "log").head(0) == 8950


def test_many_streams_share_a_quarter_of_the_quota() -> None:
    assert window_of(1 << 30, 1) == window_of(1 << 30, 16) == 16 << 20
    assert window_of(1 << 30, 64) == 4 << 20
    assert window_of(64 << 20, 100) == 1 << 20


def test_a_quota_is_shared_out() -> None:
    options = Options.of_quota(1 << 30)
    assert (options.row_budget, options.prewrite_budget, options.inbox) == (512 << 20, 256 << 20, 64 << 20)
    assert CaptureConfig(pd=("a:1",), log="x", memory_quota=256 << 20).receiving.row_budget == 128 << 20
    assert [size_bytes(t, "--x") for t in ("1GiB", "512MiB", "1.5g", "100000", "2 kb")] == [1 << 30, 512 << 20, 3 << 29, 100_000, 2048]
    with pytest.raises(ConfigError, match="--memory-quota"):
        size_bytes("much", "--memory-quota")
    with pytest.raises(ConfigError, match="--memory-quota"):
        CaptureConfig(pd=("a:1",), log="x", memory_quota=1000)
