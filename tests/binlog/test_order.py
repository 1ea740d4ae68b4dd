"""The order of commits: the article's rule, and random histories against what must hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemill.binlog.indexkeys import Pointer
from tidemill.binlog.messages import BinlogType
from tidemill.binlog.order import Order, Stored


def _stored(tp: BinlogType, start_ts: int, commit_ts: int, place: int = 0) -> Stored:
    return Stored(tp, start_ts, commit_ts, Pointer(0, place))


def test_a_prewrite_holds_up_what_comes_behind_it() -> None:
    order = Order()
    assert not order.take([_stored(BinlogType.PREWRITE, 1, 0), _stored(BinlogType.PREWRITE, 2, 0), _stored(BinlogType.COMMIT, 2, 5)])
    assert order.max_commit_ts == 0
    held = order.held_by
    assert held is not None
    assert held.start_ts == 1
    assert order.take([_stored(BinlogType.COMMIT, 1, 4)])
    assert order.max_commit_ts == 5
    assert order.held_by is None


def test_a_dropped_prewrite_and_a_rollback_let_the_order_go_on() -> None:
    order = Order()
    order.take([_stored(BinlogType.PREWRITE, 1, 0), _stored(BinlogType.PREWRITE, 2, 0), _stored(BinlogType.ROLLBACK, 9, 9)])
    assert not order.drop(1)
    assert order.take([_stored(BinlogType.ROLLBACK, 2, 0)])
    assert order.max_commit_ts == 9


@given(st.data())
def test_nothing_at_or_below_the_greatest_commit_comes_later(data: st.DataObject) -> None:
    """Timestamps are taken from one clock: start_ts before the Prewrite is written, commit_ts after it is answered."""
    order, place = Order(), 0
    opened: list[int] = []
    committing: list[tuple[int, int]] = []
    for clock in range(1, data.draw(st.integers(2, 41))):
        kind = data.draw(st.sampled_from(["prewrite", "take commit_ts", "commit", "rollback", "fake"]))
        arrived = None
        if kind == "prewrite":
            opened.append(clock)
            arrived = _stored(BinlogType.PREWRITE, clock, 0, place)
        elif kind == "take commit_ts" and opened:
            committing.append((opened.pop(data.draw(st.integers(0, len(opened) - 1))), clock))
        elif kind == "commit" and committing:
            start_ts, commit_ts = committing.pop(data.draw(st.integers(0, len(committing) - 1)))
            assert commit_ts > order.max_commit_ts
            arrived = _stored(BinlogType.COMMIT, start_ts, commit_ts, place)
        elif kind == "rollback" and opened:
            arrived = _stored(BinlogType.ROLLBACK, opened.pop(), 0, place)
        elif kind == "fake":
            arrived = _stored(BinlogType.ROLLBACK, clock, clock, place)
        if arrived is not None:
            place += 1
            order.take([arrived])
