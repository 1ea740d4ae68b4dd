"""The receiver while the disk of its scratch files hangs, is slow, full or away."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest

from tests.support.capture.eventfeeds import Row, message, resolved
from tests.support.capture.receiving import INIT, commit, key, prewrite, stored, two_pieces
from tidemill.capture.tikv.receive.ingest import Options, Receiver
from tidemill.capture.tikv.receive.memory import SLAB
from tidemill.capture.tikv.sort import runs
from tidemill.capture.tikv.sort.partition import PartitionLog
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import Draft, LocalStorage
from tidemill.changelog.writer import LogWriter
from tidemill.errors import DiskLow
from tidemill.kernels.receive.layout import COMMITTED, PUT


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
    # The last seal may have moved the head before the loop looked: then it is not counted yet.
    receiver.workers.wait(receiver._sealing.futures())
    receiver._finish_seals()
    assert refused
    assert receiver.stats.sealed_rows == len(wanted)
    place.drafts = place.heads = 1 << 30
    receiver.stop()
    assert receiver.failure is None
    writer.close()
    assert LogReader(tmp_path / "log").head(0) == 8950
