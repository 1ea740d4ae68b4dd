"""The store: versions, locks, garbage collection, bulk-loaded blocks, against a plain model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.playground.store.blocks import Block
from tidemill.playground.store.mvcc import (
    KeyLocked,
    Lock,
    LockKind,
    Mvcc,
    TxnLockNotFound,
    WriteConflict,
    tablet_prefix,
    visible,
)
from tidemill.tidb.keys import record_key, record_range


def key(handle: int, table: int = 45) -> bytes:
    return record_key(table, handle)


def put(handle: int, start_ts: int, value: bytes = b"v", kind: LockKind = LockKind.PUT) -> Lock:
    return Lock(key(handle), key(handle), start_ts, kind, value if kind is LockKind.PUT else None)


def scanned(store: Mvcc, ts: int, limit: int = 0) -> list[tuple[bytes, object]]:
    return list(store.scan(*record_range(45), ts, limit))


def block(handles: list[int], ts: int, table: int = 45) -> Block:
    keys = b"".join(key(h, table) for h in handles)
    values = b"".join(b"block%d;" % h for h in handles)
    ends = np.cumsum([len(b"block%d;" % h) for h in handles]).astype(np.int64)
    return Block(ts - 1, ts, len(key(0)), keys, values, ends)


def test_reads_see_the_newest_version_at_their_ts() -> None:
    store = Mvcc()
    assert store.write(key(1), b"a", 1, 2) is None
    assert store.write(key(1), b"b", 3, 4) == b"a"
    assert store.write(key(1), None, 5, 6) == b"b"
    assert [store.get(key(1), ts) for ts in range(1, 8)] == [None, b"a", b"a", b"b", b"b", None, None]
    assert store.committed_at(key(1), 3) == 4
    assert store.committed_at(key(1), 99) == 0


def test_a_lock_stops_reads_above_it_and_other_writers() -> None:
    store = Mvcc()
    store.write(key(1), b"a", 1, 2)
    assert store.prewrite(put(1, 10, b"b")) == b"a"
    assert store.get(key(1), 9) == b"a"
    assert store.get(key(1), 20, own=10) == b"a"
    with pytest.raises(KeyLocked):
        store.get(key(1), 20)
    with pytest.raises(KeyLocked):
        store.check_writable(key(1), 11, 11)
    store.prewrite(put(1, 10, b"b"))  # again
    assert store.commit(key(1), 10, 15) is not None
    assert store.commit(key(1), 10, 15) is None, "a repeated commit changes nothing"
    assert store.get(key(1), 15) == b"b"
    with pytest.raises(WriteConflict):
        store.check_writable(key(1), 12, 12)


def test_rolled_back_transactions_cannot_come_back() -> None:
    store = Mvcc()
    store.prewrite(put(1, 10))
    assert store.rollback(key(1), 10) is not None
    assert store.rollback(key(1), 10) is None
    with pytest.raises(WriteConflict):
        store.prewrite(put(1, 10))
    with pytest.raises(TxnLockNotFound):
        store.commit(key(1), 10, 11)


def test_locks_that_write_nothing_are_invisible_to_readers() -> None:
    store = Mvcc()
    store.write(key(1), b"a", 1, 2)
    for kind in (LockKind.LOCK, LockKind.PESSIMISTIC):
        store.prewrite(Lock(key(1), key(1), 10, kind))
        assert store.get(key(1), 20) == b"a"
        store.commit(key(1), 10, 11)
    assert len(store.tablet(key(1)).history(key(1))) == 1


def test_scans_skip_deletes_and_report_locks_in_key_order() -> None:
    store = Mvcc()
    for handle in (5, 1, 3):
        store.write(key(handle), b"%d" % handle, 1, 2)
    store.write(key(3), None, 3, 4)
    store.prewrite(put(2, 5))
    store.prewrite(put(5, 5))
    found = scanned(store, 10)
    assert [k for k, _ in found] == [key(1), key(2), key(5)]
    assert [isinstance(v, KeyLocked) for _, v in found] == [False, True, True]
    assert [k for k, _ in scanned(store, 4)] == [key(1), key(5)]
    assert len(scanned(store, 10, limit=2)) == 2


def test_only_records_and_meta_keys_are_stored() -> None:
    assert tablet_prefix(b"mDBs") == b"m"
    with pytest.raises(ValueError, match="neither a record nor a meta key"):
        tablet_prefix(b"t\x80\x00\x00\x00\x00\x00\x00\x01_i\x80")


@settings(max_examples=80)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.one_of(st.none(), st.binary(max_size=3))), max_size=40),
    st.lists(st.integers(0, 6), unique=True, max_size=5),
    st.integers(0, 90),
)
def test_against_a_plain_model(writes: list[tuple[int, bytes | None]], loaded: list[int], safe_point: int) -> None:
    """Any writes over bulk-loaded rows, then garbage collection: reads at or above the safe point are as before."""
    store, model = Mvcc(), {}
    if loaded:
        store.load(block(sorted(loaded), 2))
        model = {key(h): [(2, b"block%d;" % h)] for h in loaded}
    for position, (handle, value) in enumerate(writes):
        commit_ts = 4 + 2 * position
        expected = model.get(key(handle), [])
        assert store.write(key(handle), value, commit_ts - 1, commit_ts) == (expected[-1][1] if expected else None)
        model.setdefault(key(handle), []).append((commit_ts, value))

    def truth(ts: int) -> list[tuple[bytes, bytes]]:
        found = ((k, visible(((c, 0, v) for c, v in history), ts)) for k, history in sorted(model.items()))
        return [(k, v) for k, v in found if v is not None]

    for ts in range(0, 90, 7):
        assert scanned(store, ts) == truth(ts)
    store.collect(safe_point)
    for ts in range(safe_point, 90, 5):
        assert scanned(store, ts) == truth(ts)
        assert all(store.get(k, ts) == v for k, v in truth(ts))


def test_garbage_collection_counts_and_forgets() -> None:
    store = Mvcc()
    for ts in range(2, 12, 2):
        store.write(key(1), b"%d" % ts, ts - 1, ts)
    store.write(key(2), b"x", 1, 2)
    store.write(key(2), None, 3, 4)
    assert store.collect(7) == 2 + 2
    assert [v[0] for v in store.tablet(key(1)).history(key(1))] == [6, 8, 10]
    assert store.tablet(key(2)).history(key(2)) == []


def test_versions_may_arrive_late() -> None:
    """A secondary key whose lock is resolved late keeps its place in time."""
    store = Mvcc()
    store.write(key(1), b"new", 9, 10)
    assert store.write(key(1), b"old", 3, 4) is None
    assert [v[2] for v in store.tablet(key(1)).history(key(1))] == [b"old", b"new"]


def test_rows_that_change_during_a_scan_are_not_missed() -> None:
    """A bulk-loaded row that is changed after a scan began, but before it is reached, still comes with its loaded version."""
    store = Mvcc()
    store.load(block([1, 2, 3, 4], 2))
    store.write(key(2), b"before", 3, 4)
    items = store.items(*record_range(45))
    seen = [next(items)]
    store.write(key(3), b"during", 5, 6)
    store.write(key(9), b"new", 7, 8)
    seen += list(items)
    assert [k for k, _ in seen][:4] == [key(1), key(2), key(3), key(4)]
    assert [[v[2] for v in history] for _, history in seen[:4]] == [
        [b"block1;"],
        [b"block2;", b"before"],
        [b"block3;", b"during"],
        [b"block4;"],
    ]
