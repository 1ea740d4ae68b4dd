"""What the receiver counts and what it leaves: subscriptions that it has ended, rows above the frontier, commits of spilled prewrites."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path

import pytest

from tests.support.captures import Change, partition_changes
from tests.support.eventfeeds import Row, message, resolved
from tidemill.capture.tikv.partition import PartitionLog
from tidemill.capture.tikv.receiver import Event, Options, PieceFrozen, ProtocolBroken, Receiver, ScanDone
from tidemill.changelog.layout import LogIdentity
from tidemill.changelog.reader import LogReader
from tidemill.changelog.writer import LogWriter
from tidemill.kernels.receive.layout import COMMIT, COMMITTED, INITIALIZED, PREWRITE, PUT
from tidemill.tidb.keys import record_key

START = 10
KEY = record_key(5, 1)


class Bench:
    """A receiver of one partition, one step at a time; piece 1 is subscribed as region 1, request 7."""

    def __init__(self, folder: Path, options: Options) -> None:
        self.folder, self.events = folder, list[Event]()
        identity = LogIdentity(cluster_id="1", start_ts=START, partitions=1)
        self.writer = LogWriter.create(folder / "log", identity, snapshot={})
        self.log = PartitionLog(self.writer.partition(0), folder)
        self.receiver = Receiver([self.log], folder, self.events.extend, options=options)
        self.receiver._next_seal = float("inf")
        self.receiver.open_stream(0, True)
        self.receiver.place(1, START, 0)
        self.receiver.subscribe(1, 0, 1, 7, START, b"", b"", 0)

    def step(self, *messages: bytes) -> None:
        self.receiver.step([0] * len(messages), list(messages))

    def seal(self) -> int:
        self.receiver._seal(force=True)
        self.receiver._finish_seals(wait=True)
        return self.log.head

    def rows(self) -> list[Change]:
        return partition_changes(LogReader(self.folder / "log"), 0, START, self.log.head)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, Options())
    yield made
    made.receiver.workers.shutdown()
    made.writer.close()


def row(start: int, commit: int, key: bytes = KEY) -> Row:
    return Row(type=COMMITTED, op_type=PUT, start_ts=start, commit_ts=commit, key=key, value=b"v")


INIT = message(1, 7, [Row(type=INITIALIZED)])


def test_a_renewed_piece_hears_nothing_more_of_its_old_subscription(bench: Bench) -> None:
    bench.step(INIT, resolved(20, 7, 1))
    bench.receiver.renew(1)
    assert bench.events == [ScanDone(1), PieceFrozen(1, 20)]
    bench.step(message(1, 7, [row(25, 26)]), resolved(30, 7, 1))
    assert bench.receiver.matcher.frontiers().tolist() == [20], "rows may have been lost before: this resolved ts is not to be believed"
    assert len(bench.receiver.matcher.pending_rows()) == 0
    bench.receiver.renew(1)
    assert len(bench.events) == 2, "there is nothing to end"
    bench.receiver.subscribe(1, 0, 1, 9, 20, b"", b"", 0)
    bench.step(message(1, 9, [row(25, 26), Row(type=INITIALIZED)]), resolved(30, 9, 1))
    assert bench.seal() == 30
    assert [(r.start_ts, r.commit_ts) for r in bench.rows()] == [(25, 26)]


def test_rows_above_the_frontier_wait(bench: Bench) -> None:
    bench.step(INIT, message(1, 7, [row(12, 13), row(25, 26)]), resolved(20, 7, 1))
    assert bench.seal() == 20
    assert [r.commit_ts for r in bench.rows()] == [13]
    assert len(bench.receiver.matcher.pending_rows()) == 1
    bench.step(resolved(40, 7, 1))
    assert bench.seal() == 40
    assert [r.commit_ts for r in bench.rows()] == [13, 26]


def test_what_breaks_the_protocol_is_not_listened_to(bench: Bench) -> None:
    lone = Row(type=COMMIT, op_type=PUT, start_ts=21, commit_ts=22, key=KEY)
    bench.step(INIT, resolved(20, 7, 1))
    bench.step(message(1, 7, [lone]), message(1, 7, [row(25, 26)]), resolved(30, 7, 1))
    assert bench.events[1:] == [ProtocolBroken(1, 20, "COMMIT without its PREWRITE")]
    assert bench.receiver.matcher.frontiers().tolist() == [20]
    bench.receiver.subscribe(1, 0, 1, 7, 20, b"", b"", 0)
    bench.step(message(1, 7, [row(25, 26), Row(type=INITIALIZED)]), resolved(30, 7, 1))
    assert bench.seal() == 30, "the same ids may be used again"


def test_commits_of_prewrites_on_disk_are_joined_before_a_seal(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Options(prewrite_budget=1 << 10))
    keys = [record_key(5, i) for i in range(100)]
    locks = [Row(type=PREWRITE, op_type=PUT, start_ts=11, key=key, value=b"v" * 100) for key in keys]
    bench.step(INIT, message(1, 7, locks))
    prewrites = bench.receiver.prewrites
    wait(prewrites.futures())
    bench.step()
    assert prewrites.written > 0
    commits = [Row(type=COMMIT, op_type=PUT, start_ts=11, commit_ts=15, key=key) for key in keys]
    bench.step(message(1, 7, commits), resolved(20, 7, 1))
    wait(prewrites.futures())
    assert bench.seal() == 20
    assert [(r.key, r.commit_ts) for r in bench.rows()] == [(key, 15) for key in keys]
    bench.receiver.workers.shutdown()
    bench.writer.close()
