"""Received messages stay in the buffer that they were received into, and it is used again when no row needs it."""

from __future__ import annotations

import resource
from collections.abc import Sequence

import numpy as np
import pytest

from tests.support.capture.eventfeeds import committed, message
from tests.support.capture.receiving import INIT, commit, prewrite
from tidemill.capture.tikv.receive import memory
from tidemill.capture.tikv.receive.decode import PAD, Packed, Scanner, lots
from tidemill.capture.tikv.receive.matcher import FOREVER, Matcher
from tidemill.capture.tikv.receive.memory import BUFFER, SLAB, Array, Buffers, extend, records
from tidemill.kernels.receive.layout import PUT, ROW

MALFORMED = b"\x0a\x05\x08"


def packed(buffers: Buffers, *messages: bytes, room: int = 0) -> Packed:
    """Messages in a buffer of `buffers`, as a stream makes them. `room`: bytes that the buffer should have."""
    data = buffers.take(max(room, sum(map(len, messages)) + PAD))
    joined = b"".join(messages)
    data[: len(joined)] = np.frombuffer(joined, np.uint8)
    return Packed(data, np.cumsum([len(m) for m in messages]), buffers)


def is_free(buffers: Buffers, data: Array) -> bool:
    """Whether the buffer was given back."""
    got = buffers.take(len(data))
    same = got.ctypes.data == data.ctypes.data
    if same:
        buffers.give(got)
    return same


@pytest.fixture
def matcher() -> Matcher:
    matcher = Matcher()
    matcher.subscribe(0, 1, 7, 10)
    return matcher


@pytest.mark.parametrize("advice", [23, 9999], ids=["a system that can", "a system that cannot"])
def test_memory_that_will_be_filled_is_taken_at_once(advice: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "POPULATE_WRITE", advice)
    buffers, size = Buffers(), 64 * BUFFER
    data = buffers.take(size, fills=True)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    assert not data.any()
    data[:] = 1
    faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before
    assert (faults < size >> 13) == (advice == 23), faults


def test_messages_that_fill_their_buffer_are_not_copied(matcher: Matcher) -> None:
    buffers, value = Buffers(), b"v" * 400_000
    one = packed(buffers, message(1, 7, [INIT]), message(1, 7, [prewrite(b"k", 20, value), commit(b"k", 20, 30)]), room=600_000)
    assert one.fills_its_buffer is False, "400,000 bytes are less than half of a MiB"
    one = packed(buffers, message(1, 7, [INIT]), message(1, 7, [prewrite(b"k", 20, 2 * value), commit(b"k", 20, 30)]))
    batch = Scanner(matcher.chunks).scan([one], [0])
    assert batch.data is one.data
    matcher.feed(batch)
    rows = matcher.take(0, FOREVER)
    assert committed(rows) == [(30, 20, b"k", PUT, 2 * value, b"")]
    assert matcher.chunks.bytes == BUFFER
    assert not is_free(buffers, one.data), "a row points into it"
    matcher.release(rows)
    assert is_free(buffers, one.data)
    assert matcher.chunks.bytes == 0


def test_a_buffer_that_holds_little_is_copied_and_free_at_once(matcher: Matcher) -> None:
    buffers = Buffers()
    one = packed(buffers, message(1, 7, [INIT]), message(1, 7, [prewrite(b"k", 20, b"v"), commit(b"k", 20, 30)]))
    batch = Scanner(matcher.chunks).scan([one], [0])
    assert is_free(buffers, one.data)
    one.data[:] = 0xFF
    matcher.feed(batch)
    assert committed(matcher.pending_rows()) == [(30, 20, b"k", PUT, b"v", b"")]


def test_what_comes_behind_a_malformed_message_is_still_there(matcher: Matcher) -> None:
    """The first message leaves no row behind, so nothing but the scan that goes on holds the buffer."""
    buffers, value = Buffers(), b"v" * 900_000
    good = message(1, 7, [prewrite(b"k", 20, value), commit(b"k", 20, 30)])
    one = packed(buffers, message(1, 7, [INIT]), MALFORMED, good)
    scanner = Scanner(matcher.chunks)
    batch = scanner.scan([one], [0])
    assert batch.error is not None
    matcher.feed(batch)
    assert not is_free(buffers, one.data)
    rest = scanner.after_error(batch)
    assert rest.error is None
    matcher.feed(rest)
    rows = matcher.take(0, FOREVER)
    assert committed(rows) == [(30, 20, b"k", PUT, value, b"")]
    matcher.release(rows)
    assert is_free(buffers, one.data)


@pytest.mark.parametrize("sizes", [[], [9], [1], [9, 9], [1, 1, 9, 1, 9, 9, 1]])
def test_lots_keep_the_order(sizes: Sequence[int]) -> None:
    """Full buffers (9) come alone, all others with their neighbours."""
    buffers = Buffers()
    messages = [packed(buffers, b"x" * (size * 100_000)) for size in sizes]
    streams = list(range(len(sizes)))
    found = list(lots(streams, messages))
    assert [s for some, _ in found for s in some] == streams
    assert [m for _, some in found for m in some] == messages
    assert all(len(some) == 1 for _, some in found if some[0].fills_its_buffer)  # type: ignore[union-attr]
    if sizes == [1, 1, 9, 1, 9, 9, 1]:
        assert [len(some) for _, some in found] == [2, 1, 1, 1, 1, 1]


def test_stuck_prewrites_do_not_keep_their_buffers(matcher: Matcher) -> None:
    """As with slabs: what little is in use is moved together, and the buffers are free again."""
    buffers, scanner, value = Buffers(), Scanner(matcher.chunks), b"v" * 800_000
    matcher.feed(scanner.scan([message(1, 7, [INIT])]))
    held = []
    for i in range(8):
        stuck, gone = prewrite(b"stuck%d" % i, 50 + i, b"kept%d" % i), [prewrite(b"k", 100 + i, value), commit(b"k", 100 + i, 200 + i)]
        held.append(packed(buffers, message(1, 7, [stuck, *gone])))
        matcher.feed(scanner.scan([held[-1]], [0]))
        matcher.release(matcher.take(0, FOREVER))
    assert matcher.chunks.bytes == 8 * BUFFER + SLAB
    assert matcher.evacuate() == 7, "eight buffers are free, one slab is in use"
    assert matcher.chunks.bytes == SLAB
    assert all(is_free(buffers, one.data) for one in held[-1:])
    matcher.feed(scanner.scan([message(1, 7, [commit(b"stuck%d" % i, 50 + i, 500) for i in range(8)])]))
    assert sorted(committed(matcher.pending_rows())) == [(500, 50 + i, b"stuck%d" % i, PUT, b"kept%d" % i, b"") for i in range(8)]


def test_so_many_free_buffers_are_kept() -> None:
    buffers = Buffers(most=4 * BUFFER)
    taken = [buffers.take(BUFFER - i) for i in range(6)] + [buffers.take(3 * BUFFER)]
    assert [len(one) for one in taken] == [BUFFER] * 6 + [3 * BUFFER]
    for one in reversed(taken):
        buffers.give(one)
    assert is_free(buffers, taken[-1])
    assert is_free(buffers, taken[5]), "one more MiB is kept"
    assert not is_free(buffers, taken[0])


def test_what_stays_free_goes_back_to_the_system() -> None:
    """As much as was free all the time between two looks; what was used in between is kept."""
    buffers = Buffers(most=10 * BUFFER)
    taken = [buffers.take(BUFFER) for _ in range(8)]
    for one in taken:
        buffers.give(one)
    buffers.trim()
    used = [buffers.take(BUFFER) for _ in range(3)]
    for one in used:
        buffers.give(one)
    buffers.trim()
    assert buffers.free_bytes == 3 * BUFFER
    kept = [buffers.take(BUFFER) for _ in range(4)]
    assert {one.ctypes.data for one in kept[:3]} == {one.ctypes.data for one in used}
    assert buffers.free_bytes == 0


def test_a_large_buffer_that_nobody_uses_goes_back_and_small_ones_in_use_stay() -> None:
    buffers = Buffers()
    small, large = [buffers.take(BUFFER) for _ in range(3)], buffers.take(10 * BUFFER)
    for one in (*small, large):
        buffers.give(one)
    buffers.trim()
    for one in [buffers.take(BUFFER) for _ in range(3)]:
        buffers.give(one)
    buffers.trim()
    assert buffers.free_bytes == 3 * BUFFER


@pytest.mark.parametrize("is_looked_at", [False, True])
def test_records_that_become_more_keep_what_they_are(is_looked_at: bool) -> None:
    """A view that somebody still has sees the old ones."""
    arrays = [records(10, ROW), records(5, ROW)]
    arrays[0]["commit_ts"] = range(10)
    arrays[1]["commit_ts"] = 7
    view = arrays[0][3:] if is_looked_at else None
    extend(arrays, 0, 100_000)
    assert len(arrays[0]) == 100_000
    assert arrays[0]["commit_ts"][:10].tolist() == list(range(10))
    arrays[0]["commit_ts"] = 1
    assert view is None or view["commit_ts"].tolist() == list(range(3, 10))
    assert arrays[1]["commit_ts"].tolist() == [7] * 5
