"""Keys that a pipelined transaction writes several times, while some of its prewrites are on disk: the last value counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from tests.support.capture.eventfeeds import Row, message, resolved
from tests.support.capture.receiving import INIT, START, Bench
from tidemill.capture.tikv.receive.ingest import Options, ScanDone
from tidemill.kernels.receive.layout import COMMIT, COMMITTED, DELETE, PREWRITE, PUT, ROLLBACK, X_COUNT
from tidemill.tidb.keys import record_key

KEYS = [record_key(5, i) for i in range(20)]
OLD, NEW = b"OLD", b"NEW" + b"v" * 100
Make = Callable[[int], Bench]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    benches: list[Bench] = []

    def made(budget: int) -> Bench:
        folder = tmp_path / str(len(benches))
        folder.mkdir()
        benches.append(Bench(folder, Options(prewrite_budget=budget)))
        return benches[-1]

    yield made
    for bench in benches:
        bench.close()


def lock(key: bytes, generation: int, value: bytes) -> Row:
    return Row(type=PREWRITE, op_type=PUT if value else DELETE, start_ts=11, key=key, value=value, generation=generation)


def send(bench: Bench, rows: list[Row], request: int = 7, region: int = 1) -> None:
    bench.step(message(region, request, rows))
    bench.spill()


COMMITS = [Row(type=COMMIT, op_type=PUT, start_ts=11, commit_ts=15, key=key) for key in KEYS]


def nothing_left(bench: Bench) -> bool:
    """No prewrite is left in memory or on disk, and no bytes are held."""
    receiver = bench.receiver
    return (receiver.prewrites._runs, receiver.matcher.count(X_COUNT), receiver.matcher.chunks.held()) == ([], 0, 0)


@pytest.mark.parametrize("commit_first", [False, True])
@pytest.mark.parametrize("scanned", [0, 1])
@pytest.mark.parametrize("budget", [1 << 9, 1 << 11, 1 << 20])
def test_a_scan_that_delivers_an_older_generation_does_not_hide_the_one_on_disk(
    make: Make, budget: int, scanned: int, commit_first: bool
) -> None:
    """The live prewrite is on disk when the scan delivers the lock as it was in its snapshot. That one may go to disk, too."""
    bench = make(budget)
    send(bench, [lock(key, 2, NEW) for key in KEYS])
    assert (bench.receiver.prewrites.written > 0) == (budget < 1 << 20)
    if commit_first:
        send(bench, COMMITS)
    send(bench, [*(lock(key, scanned, OLD) for key in KEYS), INIT])
    if not commit_first:
        send(bench, COMMITS)
    bench.step(resolved(20, 7, 1))
    assert bench.seal() == 20
    assert {row.value for row in bench.rows()} == {NEW}
    assert len(bench.rows()) == len(KEYS)
    assert bench.events == [ScanDone(1)]
    assert nothing_left(bench)


@pytest.mark.parametrize("op", [0, DELETE])
def test_the_op_is_that_of_the_last_generation(make: Make, op: int) -> None:
    bench = make(1 << 9)
    send(bench, [lock(key, 2, b"") for key in KEYS])
    assert bench.receiver.prewrites.written > 0
    commits = [Row(type=COMMIT, op_type=op, start_ts=11, commit_ts=15, key=key) for key in KEYS]  # type: ignore[arg-type]
    send(bench, [lock(key, 1, OLD) for key in KEYS[:5]] + [INIT, *commits])
    bench.step(resolved(20, 7, 1))
    assert bench.seal() == 20
    assert [row.value or b"" for row in bench.rows()] == [b""] * len(KEYS)


@pytest.mark.parametrize("rolled_back_first", [False, True])
def test_a_rollback_ends_all_generations(make: Make, rolled_back_first: bool) -> None:
    bench = make(1 << 10)
    send(bench, [lock(key, 2, NEW) for key in KEYS])
    rollbacks = [Row(type=ROLLBACK, start_ts=11, key=key) for key in KEYS]
    locks = [*(lock(key, 1, OLD) for key in KEYS), INIT]
    send(bench, rollbacks + locks if rolled_back_first else locks + rollbacks)
    bench.step(resolved(20, 7, 1))
    assert bench.seal() == 20
    assert bench.rows() == []
    assert nothing_left(bench)


def test_prewrites_on_disk_end_with_their_subscription(make: Make) -> None:
    """The record of the third subscription has the number of the first, whose prewrites are those of an older generation."""
    bench = make(1 << 10)
    receiver = bench.receiver
    send(bench, [lock(key, 1, OLD * 40) for key in KEYS])
    assert receiver.prewrites.written > 0
    receiver.place(2, START, 0)
    receiver.subscribe(2, 0, 2, 7, START, b"", b"", 0)
    send(bench, [lock(key, 1, OLD * 40) for key in KEYS], region=2)  # its prewrites keep the transaction and perhaps the files
    first = receiver._sub_of[1]
    numbers = [first]
    for request in (8, 9, 10, 11):
        receiver.renew(1)
        receiver.subscribe(1, 0, 1, request, START, b"", b"", 0, START)
        numbers.append(receiver._sub_of[1])
        bench.seal()
        if numbers[-1] == first:
            break
    assert numbers[-1] == first
    send(bench, COMMITS, request)
    whole = [Row(type=COMMITTED, op_type=PUT, start_ts=11, commit_ts=15, key=key, value=NEW) for key in KEYS]
    send(bench, [*whole, INIT], request)
    receiver.drop([2])
    bench.step(resolved(20, request, 1))
    assert bench.seal() == 20
    assert {row.value for row in bench.rows()} == {NEW}
    assert nothing_left(bench)


def test_a_commit_whose_row_the_scan_sent_needs_no_prewrite(make: Make) -> None:
    """Another region's prewrites of the transaction are on disk."""
    bench = make(1 << 10)
    bench.receiver.place(2, START, 0)
    bench.receiver.subscribe(2, 0, 2, 7, START, b"", b"", 0)
    send(bench, [lock(key, 1, NEW) for key in KEYS[1:]], region=2)
    assert bench.receiver.prewrites.written > 0
    whole = Row(type=COMMITTED, op_type=PUT, start_ts=11, commit_ts=15, key=KEYS[0], value=NEW)
    send(bench, [COMMITS[0], whole, INIT])
    bench.receiver.drop([2])
    bench.step(resolved(20, 7, 1))
    assert bench.seal() == 20
    assert bench.events == [ScanDone(1)]
    assert [(row.key, row.value) for row in bench.rows()] == [(KEYS[0], NEW)]


@dataclass
class Region:
    """What a store holds of a region's keys, and what it has sent since a capture observes it."""

    random: Random
    ts: int = START
    sent: list[Row] = field(default_factory=list)
    locks: dict[bytes, Row] = field(default_factory=dict)
    done: list[Row] = field(default_factory=list)
    flushes: dict[int, int] = field(default_factory=dict)  # by start_ts: generation of the last flush; 0: not pipelined
    ends: dict[int, int] = field(default_factory=dict)  # by start_ts of what is committed (its commit_ts) or rolled back (0)

    def next(self) -> int:
        self.ts += 1
        return self.ts

    def begin(self) -> None:
        pipelined = self.random.random() < 0.7
        self.flushes[start := self.next()] = 0
        self._write(start, pipelined, [key for key in KEYS if key not in self.locks])

    def flush(self) -> None:
        """A pipelined transaction writes some of its keys again, and others."""
        if starts := [start for start, n in self.flushes.items() if n and start not in self.ends]:
            start = self.random.choice(starts)
            self._write(start, True, [key for key in KEYS if key not in self.locks or self.locks[key].start_ts == start])

    def _write(self, start: int, pipelined: bool, keys: list[bytes]) -> None:
        self.flushes[start] += pipelined
        generation = self.flushes[start]
        for key in self.random.sample(keys, min(len(keys), self.random.randint(1, 6))):
            value = self.random.choice((b"", b"%d of %d " % (generation, start) * self.random.choice((1, 9))))
            op = PUT if value else DELETE
            row = Row(type=PREWRITE, op_type=op, start_ts=start, key=key, value=value, generation=generation)
            self.locks[key] = row
            self.sent.append(row)
            if value and self.random.random() < 0.05:  # the lock was rewritten without its value
                self.sent.append(Row(type=PREWRITE, op_type=PUT, start_ts=start, key=key, generation=generation))

    def end(self) -> None:
        """Commit or roll back some keys of a transaction."""
        if not self.locks:
            return
        start = self.random.choice(sorted(self.locks.items()))[1].start_ts
        if start not in self.ends:
            self.ends[start] = self.next() if self.random.random() < 0.8 else 0
        commit_ts = self.ends[start]
        own = sorted(key for key, row in self.locks.items() if row.start_ts == start)
        for key in self.random.sample(own, self.random.randint(1, len(own))):
            row = self.locks.pop(key)
            if commit_ts:
                facts = {"op_type": row.op_type, "start_ts": start, "commit_ts": commit_ts, "key": key}
                self.sent.append(Row(type=COMMIT, **facts))  # type: ignore[arg-type]
                self.done.append(Row(type=COMMITTED, value=row.value, **facts))  # type: ignore[arg-type]
            else:
                self.sent.append(Row(type=ROLLBACK, start_ts=start, key=key))

    def act(self, times: int) -> None:
        for _ in range(times):
            self.random.choice((self.begin, self.flush, self.flush, self.end))()

    def feed(self) -> list[Row]:
        """One subscription: what is sent from some time on, the scan of a later snapshot in between, and then the end of all."""
        self.act(self.random.randint(0, 40))
        self.sent = []
        self.act(self.random.randint(0, 15))
        scan = [*self.done, *self.locks.values()]
        self.random.shuffle(scan)
        before = len(self.sent)
        self.act(self.random.randint(0, 40))
        while self.locks:
            self.end()
        among = self.random.randint(before, len(self.sent))  # so many live rows come before the scan is complete
        order = [True] * among + [False] * len(scan)
        self.random.shuffle(order)
        live, scanned = iter(self.sent), iter(scan)
        return [next(live if one else scanned) for one in order] + [INIT, *live]


def follow(make: Make, seed: int) -> int:
    """Send a random history. Returns how many prewrites were on disk."""
    random = Random(seed)
    region = Region(random)
    bench = make(random.choice((1 << 7, 1 << 9, 1 << 11)))
    rows, at = region.feed(), 0
    while at < len(rows):
        n = random.choice((1, 3, 20))
        bench.step(message(1, 7, rows[at : at + n]))
        at += n
        if random.random() < 0.5:
            bench.spill()
        if random.random() < 0.1:
            bench.seal()
    bench.spill()
    end = region.next()
    bench.step(resolved(end, 7, 1))
    assert bench.seal() == end
    wanted = sorted((row.commit_ts, row.start_ts, row.key, row.value) for row in region.done)
    assert [(row.commit_ts, row.start_ts, row.key, row.value or b"") for row in bench.rows()] == wanted
    assert bench.events == [ScanDone(1)]
    assert nothing_left(bench)
    return bench.receiver.prewrites.written


def test_random_histories_of_pipelined_transactions_on_little_memory(make: Make) -> None:
    assert sum(follow(make, seed) for seed in range(60)) > 500
