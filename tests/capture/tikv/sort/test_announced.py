"""What a writer has announced to an object store is sealed exactly, whoever goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.capture.eventfeeds import Row, message, resolved
from tests.support.capture.sealing import START, as_log, emitted
from tests.support.changelog.actors import Actor, at_gate
from tests.support.changelog.logs import Change, batch_of
from tests.support.changelog.memory_storage import Bucket, MemoryStorage
from tidemill.capture.tikv.receive.ingest import Options, Receiver
from tidemill.capture.tikv.receive.workers import Threads
from tidemill.capture.tikv.sort.partition import PartitionLog
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.reader import LogReader
from tidemill.changelog.writer import LogWriter, Share
from tidemill.errors import LogUnavailable
from tidemill.kernels.receive.layout import COMMITTED, INITIALIZED, PUT
from tidemill.tidb.keys import record_key


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
    """Two seals wait for their store at the same time: neither PUT is answered before the other one has come."""
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
