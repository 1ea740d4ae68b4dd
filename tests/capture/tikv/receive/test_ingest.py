"""What the receiver counts and drops: subscriptions that it has ended, rows above the frontier, commits of spilled prewrites."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path
from threading import Event as Flag
from typing import Any

import pytest

from tests.support.capture.eventfeeds import Row, message, resolved
from tests.support.capture.receiving import START, Bench
from tidemill.capture.tikv.receive.ingest import Options, ProtocolBroken, RowLost, ScanDone, SubRangeFrozen
from tidemill.capture.tikv.receive.matcher import FOREVER
from tidemill.capture.tikv.regions.actions import RowSeen
from tidemill.capture.tikv.sort.partition import Sealed
from tidemill.kernels.receive.layout import COMMIT, COMMITTED, DELETE, INITIALIZED, PREWRITE, PUT
from tidemill.tidb.keys import record_key

KEY = record_key(5, 1)


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
    assert bench.events == [ScanDone(1), SubRangeFrozen(1, 20)]
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
    assert bench.events[1:] == [ProtocolBroken(1, 20, "COMMIT without its PREWRITE", RowSeen(22, 21, KEY))]
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


LATE = "commit_ts at or below the resolved ts"


def test_a_row_below_the_resolved_ts_is_scanned_again_while_the_log_is_behind(bench: Bench) -> None:
    bench.receiver.set_ceiling(12, [0])
    bench.step(INIT, message(1, 7, [row(13, 14)]), resolved(20, 7, 1))
    assert bench.seal() == 12
    bench.step(message(1, 7, [row(15, 16)]), message(1, 7, [row(21, 22)]), resolved(30, 7, 1))
    assert bench.events[1:] == [ProtocolBroken(1, 15, LATE, RowSeen(16, 15, KEY))]
    bench.receiver.set_ceiling(FOREVER, [0])
    assert bench.seal() == 15, "the promise up to 20 counts no more"
    bench.receiver.subscribe(1, 0, 1, 9, 15, b"", b"", 0, START)
    bench.step(message(1, 9, [row(15, 16), row(17, 18), row(21, 22), Row(type=INITIALIZED)]), resolved(30, 9, 1))
    assert bench.seal() == 30
    assert [r.commit_ts for r in bench.rows()] == [14, 16, 18, 22]


def test_a_row_that_the_log_is_complete_beyond_is_told_as_lost(bench: Bench) -> None:
    bench.step(INIT, resolved(20, 7, 1))
    assert bench.seal() == 20
    bench.step(message(1, 7, [row(15, 20)]))
    assert bench.events[1:] == [RowLost(1, 1, LATE, RowSeen(20, 15, KEY), 20)]
    assert bench.receiver.stats.violations == 1
    assert bench.receiver.stats.causes == {LATE: 1}


def test_a_seal_that_has_begun_counts_as_done(bench: Bench) -> None:
    begun, go_on = Flag(), Flag()
    seal = bench.log.seal

    def slow(rows: Any, to_ts: int) -> Sealed:
        begun.set()
        go_on.wait()
        return seal(rows, to_ts)

    bench.log.seal = slow  # type: ignore[method-assign]
    bench.step(INIT, resolved(20, 7, 1))
    bench.receiver._seal()
    begun.wait()
    assert bench.log.head == START
    bench.step(message(1, 7, [row(15, 16)]))
    assert bench.events[1:] == [RowLost(1, 1, LATE, RowSeen(16, 15, KEY), 20)]
    go_on.set()
    assert bench.seal() == 20


def test_what_an_earlier_subscription_was_promised_still_holds(bench: Bench) -> None:
    bench.receiver.set_ceiling(12, [0])
    bench.step(INIT, resolved(20, 7, 1))
    bench.receiver.renew(1)
    bench.receiver.subscribe(1, 0, 1, 9, 20, b"", b"", 0, START)
    bench.step(message(1, 9, [row(5, 9), row(15, 16)]))
    assert bench.events[-1] == ProtocolBroken(1, 15, LATE, RowSeen(16, 15, KEY)), "what was committed before the start does not count"


def on_disk(bench: Bench, locks: list[Row]) -> None:
    """Prewrites that the receiver has written to disk."""
    bench.step(INIT, message(1, 7, locks))
    wait(bench.receiver.prewrites.futures())
    bench.step()
    assert bench.receiver.prewrites.written == len(locks)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, Options(prewrite_budget=1 << 10))
    yield made
    made.receiver.workers.shutdown()
    made.writer.close()


def test_commits_without_an_op_keep_that_of_prewrites_on_disk(small: Bench) -> None:
    keys = [record_key(5, i) for i in range(100)]
    ops = [DELETE if i % 3 == 0 else PUT for i in range(100)]
    values = [b"" if op == DELETE else b"v" * 100 for op in ops]
    on_disk(small, [Row(type=PREWRITE, op_type=o, start_ts=11, key=k, value=v) for k, o, v in zip(keys, ops, values, strict=True)])
    small.step(message(1, 7, [Row(type=COMMIT, start_ts=11, commit_ts=15, key=key) for key in keys]), resolved(20, 7, 1))
    assert small.seal() == 20
    assert [(r.key, r.value or b"") for r in small.rows()] == list(zip(keys, values, strict=True))


def test_a_commit_that_finds_no_prewrite_on_disk_is_scanned_again(small: Bench) -> None:
    """Its resolved ts may have been reported meanwhile: the log waits, and the scan begins below the row."""
    keys = [record_key(5, i) for i in range(100)]
    on_disk(small, [Row(type=PREWRITE, op_type=PUT, start_ts=11, key=key, value=b"v" * 100) for key in keys[:99]])
    commits = [Row(type=COMMIT, op_type=PUT, start_ts=11, commit_ts=15, key=key) for key in keys]
    small.step(message(1, 7, commits), resolved(20, 7, 1))
    assert small.seal() == 14
    assert small.events[-1] == ProtocolBroken(1, 14, "COMMIT without its PREWRITE", RowSeen(15, 11, keys[99]))
    small.receiver.subscribe(1, 0, 1, 9, 14, b"", b"", 0, START)
    small.step(message(1, 9, [row(11, 15, key) for key in keys] + [Row(type=INITIALIZED)]), resolved(20, 9, 1))
    assert small.seal() == 20
    assert [r.key for r in small.rows()] == keys


def test_a_commit_to_a_put_of_a_delete_on_disk_is_not_delivered(small: Bench) -> None:
    keys = [record_key(5, i) for i in range(100)]
    on_disk(small, [Row(type=PREWRITE, op_type=DELETE, start_ts=11, key=key, old_value=b"o" * 100) for key in keys])
    small.step(message(1, 7, [Row(type=COMMIT, op_type=PUT, start_ts=11, commit_ts=15, key=keys[0])]), resolved(20, 7, 1))
    assert small.seal() == 14
    assert small.events[-1] == ProtocolBroken(1, 14, "PUT without a value", RowSeen(15, 11, keys[0]))
    assert small.rows() == []
