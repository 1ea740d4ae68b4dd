"""Order, duplicates, segments, spilling: what is in the log equals a plain sorted set of the rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.support.capture.eventfeeds import Reference, Row, committed, message, resolved
from tests.support.capture.sealing import START, as_log, emitted, feed, log_rows, new_log, transactions
from tidemill.capture.tikv.receive.decode import Scanner
from tidemill.capture.tikv.receive.ingest import Event, Options, ProtocolBroken, Receiver, ScanDone, StreamLost, SubRangeFailed
from tidemill.capture.tikv.receive.matcher import FOREVER, Initialized, Matcher, size_of
from tidemill.capture.tikv.regions.actions import RowSeen
from tidemill.capture.tikv.sort import partition
from tidemill.capture.tikv.sort.partition import PartitionLog, Sealed
from tidemill.capture.tikv.sort.sorter import Sorter
from tidemill.capture.tikv.sort.spill import PrewriteSpill, RowSpill
from tidemill.kernels.address import address
from tidemill.kernels.receive.layout import COMMIT, COMMITTED, DELETE, INITIALIZED, PREWRITE, PUT, ROLLBACK, ROW, X_COUNT
from tidemill.kernels.receive.seal import arrange, moved
from tidemill.tidb.keys import record_key


@pytest.mark.parametrize("seed", range(4))
def test_order_duplicates_and_batches(seed: int, tmp_path: Path) -> None:
    random_ = random.Random(seed)
    rows = transactions(random_, 6000)
    again = random_.sample(rows, 2000)
    for row in random_.sample(again, 500):  # a copy that lost its old value: history was collected in between
        poorer = Row.FromString(row.SerializeToString())
        poorer.old_value = b""
        again.append(poorer)
    sent = rows + again
    random_.shuffle(sent)
    matcher = Matcher()
    scanner = Scanner(matcher.chunks)
    matcher.subscribe(0, 1, 7, START)
    feed(matcher, scanner, sent)
    with new_log(tmp_path) as writer:
        log = PartitionLog(writer.partition(0), tmp_path)
        log._sealer = Sorter(max_rows=700, max_bytes=50_000)
        done = log.seal(matcher.take(0, FOREVER - 1), 10**7)
        assert log_rows(tmp_path)[0] == as_log(emitted(rows))
        assert done.rows == len(as_log(emitted(rows)))
    done.release_holds(matcher.chunks)
    assert matcher.chunks.held() == 0


@pytest.mark.parametrize("bits", [0, 1, 11, 12, 23, 40, 62])
@pytest.mark.parametrize("rows_each", [1, 7, 60])
def test_any_commit_ts_sorts(bits: int, rows_each: int) -> None:
    """Times that differ in few or many bits, in whichever, with groups of few and of many rows: in the order of NumPy."""
    random_ = np.random.default_rng(bits * 100 + rows_each)
    n = 3000
    times = random_.integers(0, 2**bits, -(-n // rows_each), dtype=np.int64, endpoint=True) << (62 - bits)
    keys = random_.permutation(n).astype(">u8")
    rows = np.zeros(n, ROW)
    rows["commit_ts"] = random_.permutation(np.repeat(times, rows_each)[:n])
    rows["start_ts"] = 7
    rows["key"] = keys.ctypes.data + 8 * np.arange(n)
    rows["key_len"] = 8
    plan = Sorter().plan(rows)
    assert plan.order[: plan.count].tolist() == np.lexsort((keys, rows["commit_ts"])).tolist()


def spilled(log: PartitionLog, matcher: Matcher, limit: int) -> None:
    """Rows up to a commit ts go to disk."""
    with ThreadPoolExecutor(1) as disk:
        spill = RowSpill(matcher, [log], disk)
        kept = matcher.take(0, FOREVER)
        matcher.append(0, kept[kept["commit_ts"] <= limit])
        assert spill.begin() == int((kept["commit_ts"] <= limit).sum())
        assert spill.busy(0) or not len(kept)
        matcher.append(0, kept[kept["commit_ts"] > limit])
        wait(spill.futures())
        spill.finish({0})
        assert spill.busy(0) or not len(kept), "a partition that is being sealed gets nothing"
        spill.finish(())
        assert not spill.busy(0)


def test_records_are_copied_as_they_are() -> None:
    random_ = np.random.default_rng(3)
    rows = np.frombuffer(random_.bytes(ROW.itemsize * 500), ROW).copy()
    for name in ("key_len", "value_len", "old_len"):
        rows[name] = random_.integers(0, 1 << 20, len(rows))
    order = random_.permutation(len(rows))[:333].astype(np.int32)
    out = np.zeros(len(rows), ROW)
    assert arrange(address(rows), address(order), len(order), address(out)) == len(order)
    assert out.tobytes() == b"".join(rows[i].tobytes() for i in order) + bytes(ROW.itemsize * (len(rows) - len(order)))
    assert moved(address(rows), len(rows), address(out)) == sum(int(rows[name].sum()) for name in ("key_len", "value_len", "old_len"))
    assert out.tobytes() == rows.tobytes()


@pytest.mark.parametrize("seed", range(4))
def test_spilled_rows_merge_into_the_same_log(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several runs, rows still in memory, duplicates across them, seals in between, small segments."""
    random_ = random.Random(seed)
    monkeypatch.setattr(partition, "PIECE_ROWS", (300, 1 << 18)[seed % 2])
    rows = transactions(random_, 8000)
    sent = rows + random_.sample(rows, 3000)
    random_.shuffle(sent)
    matcher = Matcher()
    scanner = Scanner(matcher.chunks)
    matcher.subscribe(0, 1, 7, START)
    with new_log(tmp_path) as writer:
        log = PartitionLog(writer.partition(0), tmp_path, segment_bytes=100_000, slice_rows=random_.choice((100, 1000, 5000)))
        cut = sorted(r.commit_ts for r in rows)[len(rows) // 2]
        for at in range(0, len(sent), 2000):
            feed(matcher, scanner, sent[at : at + 2000])
            if random_.random() < 0.7:
                spilled(log, matcher, FOREVER)
        for to_ts in (cut - 5, cut, 10**7):
            log.seal(matcher.take(0, to_ts), to_ts).release_holds(matcher.chunks)
        got, spans = log_rows(tmp_path)
        assert got == as_log(emitted(rows))
        assert spans[-1][1] == 10**7
        assert len(spans) > 3
        assert log.spilled_rows == 0
    assert matcher.chunks.held() == 0
    assert not list(tmp_path.glob(".run-*"))


def test_the_newest_rows_go_to_disk_a_lot_at_a_time(tmp_path: Path) -> None:
    rows = transactions(random.Random(5), 4000)
    matcher = Matcher()
    scanner = Scanner(matcher.chunks)
    matcher.subscribe(0, 1, 7, START)
    feed(matcher, scanner, rows)
    with new_log(tmp_path) as writer, ThreadPoolExecutor(1) as disk:
        log = PartitionLog(writer.partition(0), tmp_path)
        lot = matcher.row_bytes() // 5
        spill = RowSpill(matcher, [log], disk, lot=lot)
        for left in (4, 3, 2):
            before = matcher.pending_rows().copy()
            n = spill.begin()
            assert 0.8 * lot < spill.bytes < 1.2 * lot
            wait(spill.futures())
            spill.finish(())
            assert matcher.pending_rows().tolist() == before[: len(before) - n].tolist(), "the newest are gone"
            assert matcher.row_bytes() == size_of(matcher.pending_rows())
            assert 0.8 * left * lot < matcher.row_bytes() < 1.2 * left * lot
        matcher.append(0, matcher.take_newest(0, matcher.row_bytes() * 2 // 3)[0])
        assert len(matcher.pending_rows()) == len(before) - n, "for the few that would stay a second file is not worth it"
        packer = spill._packer
        spill.trim()
        assert spill._packer is packer, "it was used since the last look"
        spill.trim()
        assert spill._packer is not packer
        log.seal(matcher.take(0, FOREVER), 10**7).release_holds(matcher.chunks)
        assert log_rows(tmp_path)[0] == as_log(emitted(rows))
    assert matcher.chunks.held() == 0


def test_the_same_interval_again_gives_the_same_file(tmp_path: Path) -> None:
    random_ = random.Random(1)
    rows = transactions(random_, 3000)
    files = []
    for n in range(3):
        matcher = Matcher()
        scanner = Scanner(matcher.chunks)
        matcher.subscribe(0, 1, 7, START)
        sent = rows + random_.sample(rows, 500 * n)
        random_.shuffle(sent)
        feed(matcher, scanner, sent)
        with new_log(tmp_path / str(n)) as writer:
            log = PartitionLog(writer.partition(0), tmp_path / str(n))
            if n == 2:
                spilled(log, matcher, 1500)
            (file,) = log.seal(matcher.take(0, 2000), 2000).files
        files.append(Path(file).read_bytes())
    assert files[0] == files[1] == files[2]


@pytest.mark.parametrize("on_disk", [False, True])
def test_rows_of_a_table_that_moved_to_another_partition_stay_out(on_disk: bool, tmp_path: Path) -> None:
    rows = [
        Row(type=COMMITTED, op_type=PUT, start_ts=99, commit_ts=c, key=record_key(t, h), value=b"v")
        for t in (5, 6)
        for h, c in enumerate((100, 200, 300, 400))
    ]
    matcher = Matcher()
    scanner = Scanner(matcher.chunks)
    matcher.subscribe(0, 1, 7, START)
    feed(matcher, scanner, rows)
    with new_log(tmp_path) as writer:
        log = PartitionLog(writer.partition(0), tmp_path)
        log.moved_away(5, 150, FOREVER)
        log.came_back(5, 350)
        if on_disk:
            spilled(log, matcher, FOREVER)
        log.seal(matcher.take(0, 1000), 1000).release_holds(matcher.chunks)
    got = {(table, commit_ts) for table, _, _, commit_ts, *_ in log_rows(tmp_path)[0]}
    assert got == {(5, 100), (5, 400), (6, 100), (6, 200), (6, 300), (6, 400)}
    assert matcher.chunks.held() == 0


def test_ranges_of_a_table_that_moved_stay_out(tmp_path: Path) -> None:
    """Random rows and ranges, compared with the rule in words; ranges that come back are let in again."""
    random_ = random.Random(5)
    edges = (b"", *sorted(random_.randbytes(random_.randrange(1, 9)) for _ in range(4)), b"")
    away = {(low, high): random_.randrange(100, 400) for low, high in pairwise(edges) if random_.random() < 0.7}
    back = {handles: ts + random_.randrange(0, 200) for handles, ts in away.items() if random_.random() < 0.5}
    keys = [record_key(table, 0)[:11] + random_.randbytes(random_.randrange(1, 12)) for table in random_.choices((5, 6), k=400)]
    rows = [Row(type=COMMITTED, op_type=PUT, start_ts=99, commit_ts=100 + i, key=key, value=b"v") for i, key in enumerate(keys)]
    matcher = Matcher()
    scanner = Scanner(matcher.chunks)
    matcher.subscribe(0, 1, 7, START)
    feed(matcher, scanner, rows)
    with new_log(tmp_path) as writer:
        log = PartitionLog(writer.partition(0), tmp_path)
        for handles, ts in away.items():
            log.moved_away(5, ts, FOREVER, handles)
        for handles, ts in back.items():
            log.came_back(5, ts, handles)
        log.seal(matcher.take(0, 1000), 1000).release_holds(matcher.chunks)

    def stays(row: Row) -> bool:
        handle = row.key[11:]
        handles = next((h for h in away if h[0] <= handle and (not h[1] or handle < h[1])), None)
        is_away = row.key[:11] == record_key(5, 0)[:11] and handles is not None and row.commit_ts > away[handles]
        return not is_away or (handles in back and row.commit_ts > back[handles])

    got = {commit_ts for _, _, _, commit_ts, *_ in log_rows(tmp_path)[0]}
    assert got == {row.commit_ts for row in rows if stays(row)}
    assert 0 < len(got) < len(rows)


@pytest.mark.parametrize("seed", range(6))
def test_spilled_prewrites(seed: int, tmp_path: Path) -> None:
    """Transactions larger than the budget, commits and rollbacks after the spill, before and after INITIALIZED."""
    random_ = random.Random(seed)
    matcher = Matcher(partitions=2)
    scanner = Scanner(matcher.chunks)
    spill = PrewriteSpill(matcher, tmp_path, ThreadPoolExecutor(1), budget=200_000)
    references = {region: Reference(START) for region in (1, 2, 3)}
    for region in references:
        matcher.subscribe(0, region, 7, START, partition=region % 2)
    events = _large_transactions(random_)
    for at in range(0, len(events), 400):
        part = events[at : at + 400]
        messages = [message(region, 7, [row for r, row in part if r == region]) for region in references]
        assert all(isinstance(c, Initialized) for c in matcher.feed(scanner.scan(messages)))
        spill.relieve()
        assert matcher.prewrite_bytes() <= 200_000
        if random_.random() < 0.3:
            assert spill.join() == []
        if random_.random() < 0.5:
            wait(spill.futures())
            spill.finish()
    wait(spill.futures())
    spill.finish()
    assert spill.join() == []
    for region, row in events:
        references[region].row(row)
    assert spill.written > 1000
    for p in (0, 1):
        want = sorted(x for region, reference in references.items() if region % 2 == p for x in reference.rows)
        assert sorted(committed(matcher.pending_rows(p))) == want
        matcher.release(matcher.take(p, FOREVER))
    assert matcher.count(X_COUNT) == sum(len(r.locks) for r in references.values())


def _large_transactions(random_: random.Random) -> list[tuple[int, Row]]:
    events: list[tuple[int, Row]] = []
    ends: list[tuple[int, Row]] = []
    initialized_at = random_.randrange(3)
    for t in range(12):
        start = 100 + t
        rolled_back = random_.random() < 0.2
        own = []
        for i in range(random_.choice((5, 300, 3000))):
            region, op = random_.choice((1, 2, 3)), PUT if random_.random() < 0.8 else DELETE
            key = record_key(region, i * 7919 % 100003)
            value = random_.randbytes(90) if op == PUT else b""
            lock = Row(type=PREWRITE, op_type=op, start_ts=start, key=key, value=value, old_value=random_.randbytes(20))
            events += [(region, lock)] * (2 if random_.random() < 0.05 else 1)
            own.append((region, key, op))
        random_.shuffle(own)
        for region, key, op in own:
            if rolled_back:
                ends.append((region, Row(type=ROLLBACK, start_ts=start, key=key)))
            else:
                ends.append((region, Row(type=COMMIT, op_type=op, start_ts=start, commit_ts=5000 + t, key=key)))
        if t == 4 * initialized_at:
            events += [(r, Row(type=INITIALIZED)) for r in (1, 2, 3)]
        if random_.random() < 0.3:
            events += ends
            ends = []
    return events + ends


def run_receiver(receiver: Receiver, messages: Sequence[tuple[int, bytes]]) -> None:
    receiver.start()
    for stream, data in messages:
        receiver.inbox.put(stream, data)
    receiver.stop()


def test_receiver_seals_what_is_resolved_and_survives_a_broken_stream(tmp_path: Path) -> None:
    random_ = random.Random(2)
    rows = transactions(random_, 3000)
    last = max(row.commit_ts for row in rows)
    events: list[Event] = []
    sealed: list[tuple[int, Sealed]] = []
    with new_log(tmp_path, partitions=2) as writer:
        logs = [PartitionLog(writer.partition(p), tmp_path) for p in (0, 1)]
        options = Options(linger=0, seal_every=0.02, row_budget=100_000)
        receiver = Receiver(logs, tmp_path, events.extend, lambda p, done: sealed.append((p, done)), options=options)
        receiver.open_stream(0, True)
        receiver.open_stream(1, True)
        receiver.subscribe(100, 0, 1, 7, START, b"", b"", 0)
        receiver.subscribe(200, 1, 2, 7, START, b"", b"", 1)
        parts = [rows[at : at + 100] for at in range(0, len(rows), 100)]
        messages = [(stream, message(stream + 1, 7, part)) for part in parts for stream in (0, 1)]
        messages += [(1, b"\x0a\x7f"), (1, message(2, 7, [Row(type=INITIALIZED)])), (1, resolved(last, 7, 2))]
        messages += [(0, message(1, 7, [Row(type=INITIALIZED)])), (0, resolved(last, 7, 1))]
        run_receiver(receiver, messages)
    assert receiver.failure is None
    assert isinstance(events[0], StreamLost)
    assert (events[0].stream, events[0].sub_ranges, events[0].bad) == (1, ((200, START),), True)
    assert events[1:] == [ScanDone(100)]
    assert log_rows(tmp_path)[0] == as_log(emitted(rows))
    assert receiver.stats.spilled_rows > 0
    assert log_rows(tmp_path, 1) == ([], [])
    assert {p for p, _ in sealed} == {0}


def test_bounds_of_tables_that_moved_away_are_let_go(tmp_path: Path) -> None:
    """A nightly EXCHANGE PARTITION must not add up: rows are compared with few bounds, and no row of the other table gets into the log."""
    with new_log(tmp_path) as writer:
        log = PartitionLog(writer.partition(0), tmp_path)
        receiver = Receiver([log], tmp_path, lambda events: None)
        receiver._next_seal = float("inf")
        receiver.open_stream(0, True)
        receiver.place(9, START, 0)

        def seal(ts: int) -> None:
            receiver.set_ceiling(ts, [0])
            receiver._seal(force=True)
            receiver._finish_seals(wait=True)

        ts = START
        for n in range(50):
            table, ts = 100 + n, ts + 10
            key = record_key(table, 1)
            receiver.place(10 + n, ts - 10, 0)
            receiver.subscribe(10 + n, 0, 1, 7 + n, ts - 10, b"", b"", 0)
            rows = [Row(type=COMMITTED, op_type=PUT, start_ts=ts + d - 1, commit_ts=ts + d, key=key, value=b"v") for d in (-4, 4)]
            receiver.step([0], [message(1, 7 + n, [*rows, Row(type=INITIALIZED)])])
            receiver.step([0], [resolved(ts + 5, 7 + n, 1)])
            log.moved_away(table, ts, FOREVER)
            receiver.matcher.subs[receiver._sub_of[9]]["resolved"] = ts
            seal(ts)
            receiver.drop([10 + n])
            receiver.moved_for_good(0, table, ts)
            assert len(log._bounds) <= 2
        receiver.matcher.subs[receiver._sub_of[9]]["resolved"] = ts + 10
        seal(ts + 10)
        log.moved_away(5, 10, 10)
        assert len(log._bounds) == 1
        stored = log_rows(tmp_path)[0]
        assert [(table, commit_ts) for table, _, _, commit_ts, *_ in stored] == [(100 + n, START + 10 * n + 6) for n in range(50)]


def test_receiver_tells_of_pieces_and_forgets_late_messages(tmp_path: Path) -> None:
    events: list[Event] = []
    row = Row(type=COMMITTED, op_type=PUT, start_ts=11, commit_ts=12, key=b"k", value=b"v")
    with new_log(tmp_path) as writer:
        receiver = Receiver([PartitionLog(writer.partition(0), tmp_path)], tmp_path, events.extend)
        receiver.open_stream(0, True)
        for sub_range, region in ((1, 1), (2, 2), (3, 3)):
            receiver.place(sub_range, START, 0)
            receiver.subscribe(sub_range, 0, region, 7, START, b"", b"", 0)
        scanned = Row(type=INITIALIZED)
        broken = Row(type=COMMIT, op_type=PUT, start_ts=11, commit_ts=12, key=b"k")
        receiver.step([0] * 3, [message(1, 7, [scanned, broken]), message(2, 7, [scanned, row]), message(3, 7, [row])])
        assert events == [ScanDone(1), ProtocolBroken(1, START, "COMMIT without its PREWRITE", RowSeen(12, 11, b"k")), ScanDone(2)]
        receiver.end_stream(0, "gone")
        assert events[3] == StreamLost(0, ((2, START), (3, START)), "gone")
        receiver.subscribe(2, 0, 2, 7, START, b"", b"", 0)
        assert events[4] == StreamLost(0, ((2, START),), "the stream is over")
        receiver.step([0], [message(2, 7, [row])])
        assert len(events) == 5
        receiver.drop([1, 2, 3])
        receiver.matcher.sweep()
        assert receiver.matcher.frontiers().tolist() == [FOREVER]
        assert len(receiver.matcher.pending_rows()) == 2, "what was delivered stays"


def test_a_head_never_passes_an_unmatched_commit_a_missing_region_or_the_ceiling(tmp_path: Path) -> None:
    key, other = record_key(5, 1), record_key(5, 2)
    lock = Row(type=PREWRITE, op_type=PUT, start_ts=50, key=key, value=b"v")
    events: list[Event] = []
    with new_log(tmp_path) as writer:
        log = PartitionLog(writer.partition(0), tmp_path)
        receiver = Receiver([log], tmp_path, events.extend, options=Options(seal_every=0))
        receiver.open_stream(0, True)

        def step(*messages: bytes) -> int:
            receiver.step([0] * len(messages), list(messages))
            receiver._seal(force=True)
            receiver._finish_seals(wait=True)
            return log.head

        receiver.subscribe(1, 0, 1, 7, START, b"", other, 0)
        receiver.place(2, START, 0)
        initialized = message(1, 7, [lock, Row(type=INITIALIZED)])
        assert step(initialized, resolved(40, 7, 1)) == START, "sub-range 2 has no region yet"
        receiver.subscribe(2, 0, 2, 7, START, other, b"", 0)
        assert step(resolved(60, 7, 2)) == START, "its scan is not over"
        assert step(message(2, 7, [Row(type=INITIALIZED)])) == START
        assert step(resolved(60, 7, 2)) == 40
        receiver.set_ceiling(45, [0])
        assert step(resolved(50, 7, 1)) == 45
        receiver.set_ceiling(FOREVER, [0])
        assert step() == 50
        unmatched = Row(type=COMMIT, op_type=PUT, start_ts=51, commit_ts=55, key=key)
        assert step(message(1, 7, [unmatched]), resolved(70, 7, 1), resolved(70, 7, 2)) == 50, "the row of 55 is missing"
        assert events[-1] == ProtocolBroken(1, 50, "COMMIT without its PREWRITE", RowSeen(55, 51, key))
        error = receiver.matcher.chunks.held()
        assert error >= 0
        receiver.subscribe(1, 0, 1, 8, 50, b"", other, 0)
        missing = Row(type=COMMITTED, op_type=PUT, start_ts=51, commit_ts=55, key=key, value=b"w")
        assert step(message(1, 8, [missing, Row(type=INITIALIZED)]), resolved(70, 8, 1)) == 70
        receiver.stop()
    assert [(r[3], r[5]) for r in log_rows(tmp_path)[0]] == [(55, b"w")]


def test_a_failure_of_the_log_ends_the_receiver_visibly(tmp_path: Path) -> None:
    failures: list[BaseException] = []
    with new_log(tmp_path) as writer:
        log = PartitionLog(writer.partition(0), tmp_path)
        receiver = Receiver([log], tmp_path, lambda events: None, on_failure=failures.append, options=Options(linger=0))
        receiver.open_stream(0, True)
        receiver.subscribe(1, 0, 1, 7, START, b"", b"", 0)
        (tmp_path / "rows" / "0" / "owner.json").unlink()
        row = Row(type=COMMITTED, op_type=PUT, start_ts=11, commit_ts=12, key=b"k", value=b"v")
        run_receiver(receiver, [(0, message(1, 7, [row, Row(type=INITIALIZED)])), (0, resolved(20, 7, 1))])
    assert [type(f).__name__ for f in failures] == ["LogFenced"]
    assert receiver.failure is failures[0]


def test_piece_failed_carries_the_error(tmp_path: Path) -> None:
    from tests.support.capture.eventfeeds import failure

    events: list[Event] = []
    with new_log(tmp_path) as writer:
        receiver = Receiver([PartitionLog(writer.partition(0), tmp_path)], tmp_path, events.extend)
        receiver.subscribe(9, 0, 1, 7, START, b"", b"", 0)
        receiver.step([0], [failure(1, 7, region_not_found={"region_id": 1})])
    (event,) = events
    assert isinstance(event, SubRangeFailed)
    assert (event.sub_range, event.resolved) == (9, START)
