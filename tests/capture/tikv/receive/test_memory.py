"""Memory stays within its quota: for transactions of any size, for prewrites that stay uncommitted, and for slow disks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.capture.captures import caught_up, compare, config, running, until
from tests.support.capture.eventfeeds import Row, committed, message, resolved
from tests.support.capture.loops import run
from tests.support.capture.receiving import INIT, commit, key, log_of, prewrite, stored, two_pieces
from tidemill.capture.config import CaptureConfig, size_bytes
from tidemill.capture.tikv.feed.base import window_of
from tidemill.capture.tikv.receive.decode import Scanner
from tidemill.capture.tikv.receive.ingest import Event, Options, Receiver, ScanDone
from tidemill.capture.tikv.receive.matcher import FOREVER, Initialized, Matcher
from tidemill.capture.tikv.receive.memory import SLAB
from tidemill.changelog.reader import LogReader
from tidemill.errors import ConfigError
from tidemill.kernels.receive.layout import COMMITTED, PUT, ROLLBACK, X_COUNT
from tidemill.playground.server import Playground
from tidemill.tidb.keys import record_key


@pytest.mark.parametrize("initialized_late", [False, True])
def test_a_transaction_ten_times_the_quota(tmp_path: Path, initialized_late: bool) -> None:
    """All prewrites come before the first commit, as TiKV sends them. Some are rolled back, and other transactions continue in between."""
    quota = 2 << 20
    rows = 20_000
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
