"""Order, duplicates, segments, spilling: what is in the log equals a plain sorted set of the rows."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.actors import Actor, at_gate
from tests.support.eventfeeds import Emitted, Reference, Row, committed, message, resolved
from tests.support.logs import Change, batch_of
from tests.support.memory_storage import Bucket, MemoryStorage
from tidemill.capture.tikv.receive.decode import Scanner
from tidemill.capture.tikv.receive.ingest import Event, Options, ProtocolBroken, Receiver, ScanDone, StreamLost, SubRangeFailed
from tidemill.capture.tikv.receive.matcher import FOREVER, Initialized, Matcher
from tidemill.capture.tikv.receive.workers import Threads
from tidemill.capture.tikv.regions.actions import RowSeen
from tidemill.capture.tikv.sort.partition import PartitionLog, Sealed
from tidemill.capture.tikv.sort.sorter import Sorter
from tidemill.capture.tikv.sort.spill import PrewriteSpill, RowSpill
from tidemill.changelog.layout import LogIdentity
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import LocalStorage
from tidemill.changelog.writer import LogWriter, Share
from tidemill.errors import LogUnavailable
from tidemill.kernels.receive.layout import COMMIT, COMMITTED, DELETE, INITIALIZED, PREWRITE, PUT, ROLLBACK, X_COUNT
from tidemill.tidb.keys import parse_record_key, record_key

START = 10
LogRow = tuple[int, int, int, int, bytes, bytes | None, bytes | None]


def new_log(folder: Path, partitions: int = 1) -> LogWriter:
    return LogWriter.create(LocalStorage(folder, sync=False), LogIdentity("1", START, partitions), snapshot={})


def log_rows(folder: Path, partition: int = 0) -> tuple[list[LogRow], list[tuple[int, int]]]:
    """All rows of a partition and its intervals; the reader checks that they chain."""
    reader = LogReader(folder)
    rows: list[LogRow] = []
    intervals = reader.chain(partition, START, reader.head(partition))
    for interval in intervals:
        for path in interval.parts:
            segment = reader.open_segment(path)
            for i in range(segment.num_record_batches):
                batch = segment.get_batch(i)
                batch.validate(full=True)
                got = [tuple(r.values()) for r in batch.to_pylist()]
                assert all(interval.from_ts < r[3] <= interval.to_ts for r in got)
                rows += got
    return rows, [(i.from_ts, i.to_ts) for i in intervals]


def as_log(rows: Sequence[Emitted]) -> list[LogRow]:
    """As rows of a segment: sorted, without duplicates."""
    out = set()
    for commit_ts, start_ts, key, op, value, old in rows:
        table = parse_record_key(key).table_id if key[:1] == b"t" else 0
        out.add((table, op, start_ts, commit_ts, key, value or None, old or None))
    return sorted(out, key=lambda r: (r[3], r[2], r[0], r[4]))


def emitted(rows: Sequence[Row]) -> list[Emitted]:
    return [(r.commit_ts, r.start_ts, r.key, r.op_type, r.value, r.old_value) for r in rows]


def transactions(random_: random.Random, n: int) -> list[Row]:
    """Committed rows: many tables, key shapes, transactions of 1 to 600 rows, shared commit_ts."""
    out: list[Row] = []
    ts = 1000
    while len(out) < n:
        ts += random_.randint(1, 3)
        commit_ts = ts + random_.randint(1, 3)
        prefix = bytes(random_.randrange(3)) + b"some long shared beginning of a key "
        shape = random_.randrange(4)
        keys = set()
        for _ in range(random_.choice((1, 1, 2, 10, 40, 600))):
            table = random_.choice((5, 6, 300, 7))
            if shape == 0:
                keys.add(record_key(table, random_.randint(-50, 10**9)))
            elif shape == 1:
                keys.add(record_key(table, prefix + random_.randbytes(random_.randrange(6))))
            elif shape == 2:
                keys.add(record_key(5, bytes(9 + random_.randrange(30))))
            else:
                keys.add(b"mDB:%d" % random_.randrange(1000))
        for key in sorted(keys):
            op = PUT if random_.random() < 0.8 else DELETE
            value = random_.randbytes(random_.choice((1, 40, 300))) if op == PUT else b""
            old = random_.randbytes(random_.choice((0, 31, 200)))
            out.append(Row(type=COMMITTED, op_type=op, start_ts=ts - 1, commit_ts=commit_ts, key=key, value=value, old_value=old))
    return out


def feed(matcher: Matcher, scanner: Scanner, rows: Sequence[Row], region: int = 1) -> None:
    for at in range(0, len(rows), 500):
        controls = matcher.feed(scanner.scan([message(region, 7, rows[at : at + 500])]))
        assert all(isinstance(c, Initialized) for c in controls)


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
    done.give_up(matcher.chunks)
    assert matcher.chunks.held() == 0


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


@pytest.mark.parametrize("seed", range(4))
def test_spilled_rows_merge_into_the_same_log(seed: int, tmp_path: Path) -> None:
    """Several runs, rows still in memory, duplicates across them, seals in between, small segments."""
    random_ = random.Random(seed)
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
            log.seal(matcher.take(0, to_ts), to_ts).give_up(matcher.chunks)
        got, spans = log_rows(tmp_path)
        assert got == as_log(emitted(rows))
        assert spans[-1][1] == 10**7
        assert len(spans) > 3
        assert log.spilled_rows == 0
    assert matcher.chunks.held() == 0
    assert not list(tmp_path.glob(".run-*"))


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
        log.seal(matcher.take(0, 1000), 1000).give_up(matcher.chunks)
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
        log.seal(matcher.take(0, 1000), 1000).give_up(matcher.chunks)

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
    from tests.support.eventfeeds import failure

    events: list[Event] = []
    with new_log(tmp_path) as writer:
        receiver = Receiver([PartitionLog(writer.partition(0), tmp_path)], tmp_path, events.extend)
        receiver.subscribe(9, 0, 1, 7, START, b"", b"", 0)
        receiver.step([0], [failure(1, 7, region_not_found={"region_id": 1})])
    (event,) = events
    assert isinstance(event, SubRangeFailed)
    assert (event.sub_range, event.resolved) == (9, START)


# ---- what a writer before has announced


def on_objects(bucket: Bucket) -> LogWriter:
    return LogWriter.open(MemoryStorage(bucket, at_gate), share=Share(schema=False, partitions=frozenset({0})))


def committed_at(*timestamps: int) -> list[Row]:
    return [
        Row(type=COMMITTED, op_type=PUT, start_ts=ts - 1, commit_ts=ts, key=record_key(5, ts), value=b"v" * (1 + ts % 50))
        for ts in timestamps
    ]


def stepping(log: PartitionLog, folder: Path, options: Options) -> Callable[..., int]:
    """A receiver with one subscription, driven by hand: messages in, the partition's head out."""
    receiver = Receiver([log], folder, lambda events: None, options=options)
    receiver.open_stream(0, True)
    receiver.subscribe(1, 0, 1, 7, log.head, b"", b"", 0)
    receiver.step([0], [message(1, 7, [Row(type=INITIALIZED)])])

    def step(*messages: bytes) -> int:
        receiver.step([0] * len(messages), list(messages))
        for _ in range(2):  # to the end of what was announced, and on
            receiver._finish_spills(wait_for=True)
            receiver._seal(force=True)
            receiver._finish_seals(wait=True)
        return log.head

    return step


def stopped_before_its_put(publish: Callable[[], object]) -> Actor:
    actor = Actor(publish)
    while not actor.stands_at.startswith("create"):
        assert not actor.is_over
        actor.step()
    return actor


@pytest.mark.parametrize("row_budget", [1 << 20, 400], ids=["in memory", "spilled"])
def test_a_segment_that_was_announced_is_sealed_exactly(tmp_path: Path, row_budget: int) -> None:
    bucket = Bucket()
    LogWriter.create(MemoryStorage(bucket), LogIdentity("1", START, 1), snapshot={}).close()
    options = Options(seal_every=0, row_budget=row_budget)
    rows = committed_at(*range(12, 90, 2))
    first = PartitionLog(on_objects(bucket).partition(0), tmp_path)
    step = stepping(first, tmp_path, options)
    assert step(message(1, 7, rows[:5]), resolved(20, 7, 1)) == 20
    announced = [Change(*r) for r in as_log(emitted(rows[5:])) if r[3] <= 60]
    late = stopped_before_its_put(lambda: first.writer.publish(60, [batch_of(announced)]))

    second = PartitionLog(on_objects(bucket).partition(0), tmp_path, segment_bytes=100, slice_rows=2)
    assert second.writer.pledged_to == 60
    step = stepping(second, tmp_path, options)
    assert step(message(1, 7, rows[5:24]), resolved(40, 7, 1)) == 20, "not all rows up to 60 are here"
    assert step(resolved(59, 7, 1)) == 20
    assert step(message(1, 7, rows[24:]), resolved(75, 7, 1)) == 75
    late.step()
    assert step(resolved(100, 7, 1)) == 100
    reader = LogReader(MemoryStorage(bucket))
    chain = reader.chain(0, START, 100)
    assert [(i.from_ts, i.to_ts) for i in chain][:2] == [(START, 20), (20, 60)], "one segment, though it is a big one"
    assert len(chain) > 3
    found = [c for i in chain for path in i.parts for c in reader.open_segment(path).read_all().column("commit_ts").to_pylist()]
    assert found == [r.commit_ts for r in rows]


def test_an_announced_segment_of_no_rows_does_not_hold_the_head(tmp_path: Path) -> None:
    bucket = Bucket()
    LogWriter.create(MemoryStorage(bucket), LogIdentity("1", START, 1), snapshot={}).close()
    old = on_objects(bucket)
    stopped_before_its_put(lambda: old.partition(0).publish(60, []))
    log = PartitionLog(on_objects(bucket).partition(0), tmp_path)
    step = stepping(log, tmp_path, Options(seal_every=0))
    assert step(resolved(59, 7, 1)) == START
    assert step(resolved(80, 7, 1)) == 80
    assert log.writer.last_to == 60
    assert step(message(1, 7, committed_at(85)), resolved(90, 7, 1)) == 90
    assert LogReader(MemoryStorage(bucket)).head(0) == 90


def test_on_an_object_store_partitions_are_sealed_side_by_side(tmp_path: Path) -> None:
    """Each seal waits for its store: neither of two PUTs is answered before the other one has come."""
    bucket, both = Bucket(), threading.Barrier(2)
    LogWriter.create(MemoryStorage(bucket), LogIdentity("1", START, 2), snapshot={}).close()

    def gate(what: str, name: str) -> None:
        if what == "create" and name.startswith("rows/"):
            both.wait(60)

    with LogWriter.open(MemoryStorage(bucket, gate)) as writer:
        logs = [PartitionLog(writer.partition(p), tmp_path) for p in range(2)]
        receiver = Receiver(logs, tmp_path, lambda events: None, workers=Threads(2))
        for p in range(2):
            receiver.place(p, START, p)
            receiver.subscribe(p, 0, p + 1, 7, START, b"", b"", p)
        for p in range(2):
            row = Row(type=COMMITTED, op_type=PUT, key=b"k%d" % p, start_ts=START + 1, commit_ts=START + 2, value=b"v")
            receiver.step([0, 0], [message(p + 1, 7, [Row(type=INITIALIZED)]), message(p + 1, 7, [row])])
        receiver.step([0, 0], [resolved(START + 5, 7, 1), resolved(START + 5, 7, 2)])
        receiver._seal(force=True)
        receiver._finish_seals(wait=True)
        assert [log.head for log in logs] == [START + 5] * 2
        assert receiver.stats.segments == 2
        receiver.stop()


def test_a_put_that_failed_in_the_middle_of_a_big_interval_is_made_again_as_it_was_announced(tmp_path: Path) -> None:
    """The announcement binds this writer too, however it would cut the rest now."""
    bucket, fails = Bucket(), True
    LogWriter.create(MemoryStorage(bucket), LogIdentity("1", START, 1), snapshot={}).close()

    def gate(what: str, name: str) -> None:
        if fails and what == "create" and len([n for n in bucket.content if n.startswith("rows/0/") and n.endswith(".arrow")]) == 1:
            raise LogUnavailable("no answer")

    with LogWriter.open(MemoryStorage(bucket, gate)) as writer:
        log = PartitionLog(writer.partition(0), tmp_path, segment_bytes=400, slice_rows=4)
        receiver = Receiver([log], tmp_path, lambda events: None)
        now = 0.0
        receiver.workers.now = lambda: now  # type: ignore[method-assign]
        receiver.place(0, START, 0)
        receiver.subscribe(0, 0, 1, 7, START, b"", b"", 0)
        rows = [
            Row(type=COMMITTED, op_type=PUT, key=b"k%d" % i, start_ts=START + 1, commit_ts=START + 2 + i, value=b"v" * 50)
            for i in range(40)
        ]
        receiver.step([0, 0, 0], [message(1, 7, [Row(type=INITIALIZED)]), message(1, 7, rows), resolved(START + 100, 7, 1)])
        for _ in range(3):
            receiver._seal()
            receiver._finish_seals()  # tries again
            receiver.workers.wait(receiver._sealing.futures())
            receiver._finish_seals()
            assert receiver.withheld == "no answer"
            now += 60
        pledged = writer.partition(0).pledged_to
        assert pledged is not None
        assert pledged < START + 100
        fails, log.segment_bytes = False, 1 << 30
        receiver._finish_seals()
        receiver.workers.wait(receiver._sealing.futures())
        receiver._finish_seals()
        assert log.head == START + 100
        receiver.stop()
    reader = LogReader(MemoryStorage(bucket))
    chain = reader.chain(0, START, START + 100)
    assert [i.to_ts for i in chain][1:] == [pledged, START + 100]
    found = [c for i in chain for path in i.parts for c in reader.open_segment(path).read_all().column("commit_ts").to_pylist()]
    assert found == [START + 2 + i for i in range(40)]


@pytest.mark.parametrize("fails", ["create", "swap", "both"])
@pytest.mark.parametrize("at", range(8))
def test_a_big_seal_that_an_object_store_cuts_short_goes_on_with_what_it_announced(tmp_path: Path, fails: str, at: int) -> None:
    """Whichever request fails, also if the rest is small enough to be sealed at once: the announced segment ends where it was announced.
    The rest of a seal may be too small to be merged."""
    bucket, seen, away = Bucket(), 0, 3

    def gate(what: str, name: str) -> None:
        nonlocal seen, away
        if what in ("create", "swap") and fails in (what, "both"):
            seen += 1
            if seen > at and away:
                away -= 1
                raise LogUnavailable(f"{what} of {name} has no answer")

    LogWriter.create(MemoryStorage(bucket), LogIdentity("1", START, 1), snapshot={}).close()
    storage = MemoryStorage(bucket)
    writer = LogWriter.open(storage, share=Share(schema=False, partitions=frozenset({0})))
    storage.gate = storage.objects.gate = gate
    log = PartitionLog(writer.partition(0), tmp_path, segment_bytes=400, slice_rows=3)
    receiver = Receiver([log], tmp_path, lambda events: None, options=Options(seal_every=0))
    now = 0.0
    receiver.workers.now = lambda: now  # type: ignore[method-assign]
    receiver.open_stream(0, True)
    receiver.subscribe(1, 0, 1, 7, log.head, b"", b"", 0)
    rows = committed_at(*range(12, 50, 2))
    receiver.step([0], [message(1, 7, [Row(type=INITIALIZED)])])
    receiver.step([0, 0], [message(1, 7, rows), resolved(60, 7, 1)])
    for _ in range(30):
        receiver._seal()
        receiver.workers.wait(receiver._sealing.futures())
        receiver._finish_seals()
        now += 60.0
    receiver.stop()
    assert receiver.failure is None
    assert log.head == 60
    reader = LogReader(MemoryStorage(bucket))
    chain = reader.chain(0, START, 60)
    found = [c for i in chain for path in i.parts for c in reader.open_segment(path).read_all().column("commit_ts").to_pylist()]
    assert found == [r.commit_ts for r in rows]
    assert receiver.stats.sealed_rows == len(rows)
