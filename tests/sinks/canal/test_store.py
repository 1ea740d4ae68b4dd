"""The entry store: what is written is read, in order, from any position; what a dead or late owner leaves changes nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.changelog.memory_storage import Bucket, MemoryStorage
from tidemill.changelog.storage.base import Storage
from tidemill.changelog.storage.open import LocalStorage
from tidemill.errors import ConfigError, LogCorrupt, LogFenced, LogUnavailable, PositionGone, SinkError, SinkUnavailable, TidemillError
from tidemill.protocols.canal.codes import EntryType
from tidemill.sinks.canal.store import names
from tidemill.sinks.canal.store.names import IntervalName, valid_intervals
from tidemill.sinks.canal.store.position import Position
from tidemill.sinks.canal.store.publish import StorePublisher
from tidemill.sinks.canal.store.reader import EntryStoreReader
from tidemill.sinks.canal.store.writer import SegmentWriter, index_of
from tidemill.tso import LOGICAL_BITS

Row = tuple[int, bytes]
HOUR = names.HOUR_MS << LOGICAL_BITS


class _Killed(BaseException):
    """The process ended here."""


@pytest.fixture(params=["local", "objects"])
def reopened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Storage]:
    """Opens one storage, as another process would."""
    bucket = Bucket()

    def opened(gate: Callable[[str, str], None] = lambda what, name: None) -> Storage:
        return LocalStorage(tmp_path / "store", sync=False) if request.param == "local" else MemoryStorage(bucket, gate)

    return opened


def written(storage: Storage, from_ts: int, to_ts: int, rows: Sequence[Row], epoch: int = 1) -> None:
    """A task writes a segment."""
    writer = SegmentWriter(storage, from_ts, to_ts, epoch)
    for ts, data in rows:
        index = index_of(1)
        index["commit_ts"], index["size"], index["rows"], index["kind"] = ts, len(data), 1, EntryType.ROWDATA
        index["name"] = writer.number("db", f"t{ts % 3}")
        writer.add(index, data)
    writer.seal()
    writer.publish()


def published(publisher: StorePublisher, storage: Storage, from_ts: int, to_ts: int, rows: Sequence[Row], cuts: Sequence[int] = ()) -> None:
    """A batch of one or several tasks, published."""
    bounds = [from_ts, *cuts, to_ts]
    for low, high in pairwise(bounds):
        written(storage, low, high, [row for row in rows if low < row[0] <= high])
    publisher.publish(from_ts, to_ts, publisher.attempt(from_ts, to_ts, 1))


def everything(storage: Storage, entries: int = 7, size: int = 1 << 20) -> list[Row]:
    """All entries, read in small steps; positions grow."""
    reader = EntryStoreReader(storage)
    after = Position(reader.begins(), 1 << 40)
    found: list[Row] = []
    while got := reader.read(after, entries, size):
        places = [after, *(entry.position for entry in got)]
        assert places == sorted(set(places))
        assert all(entry.table == f"t{entry.position.commit_ts % 3}" and entry.schema == "db" for entry in got)
        found += [(entry.position.commit_ts, bytes(entry.data)) for entry in got]
        after = got[-1].position
    return found


def rows_of(seed: int, from_ts: int, to_ts: int, count: int, size: int = 40) -> list[Row]:
    """Random rows with many equal times."""
    rng = random.Random(seed)
    times = sorted(rng.randint(from_ts + 1, to_ts) for _ in range(count))
    return [(ts, rng.randbytes(rng.randrange(size))) for ts in times]


@pytest.mark.parametrize("size", [40, 100_000])
def test_entries_come_back_in_order(reopened: Callable[..., Storage], size: int) -> None:
    storage = reopened()
    publisher = StorePublisher(storage, "feed", 10)
    rows = rows_of(1, 10, 60, 100, size)
    published(publisher, storage, 10, 60, rows, cuts=[25, 26, 50])
    more = rows_of(2, 60, 2 * HOUR, 30)
    published(publisher, storage, 60, 2 * HOUR, more)
    published(publisher, storage, 2 * HOUR, 2 * HOUR + 5, [])
    assert everything(reopened()) == rows + more
    assert everything(reopened(), entries=1) == rows + more
    assert everything(reopened(), entries=1000, size=1) == rows + more
    reader = EntryStoreReader(reopened())
    assert (reader.begins(), reader.head()) == (10, 2 * HOUR + 5)


def test_any_position_is_a_place_to_begin(reopened: Callable[..., Storage]) -> None:
    storage = reopened()
    publisher = StorePublisher(storage, "feed", 0)
    rows = rows_of(3, 0, 30, 60)
    published(publisher, storage, 0, 30, rows, cuts=[11])
    reader = EntryStoreReader(reopened())
    whole = reader.read(Position(0, 0), 1000, 1 << 20)
    assert [(e.position.commit_ts, bytes(e.data)) for e in whole] == rows
    for at, entry in enumerate(whole):
        assert reader.read(entry.position, 3, 1 << 20) == whole[at + 1 : at + 4]


def test_the_numbers_of_a_commit_ts_go_on_in_the_next_segment(reopened: Callable[..., Storage]) -> None:
    storage = reopened()
    publisher = StorePublisher(storage, "feed", 0)
    written(storage, 0, 5, [(4, b"a"), (5, b"b"), (5, b"c")])
    segments = publisher.attempt(0, 5, 1)
    assert publisher.next_position(5, segments) == Position(5, 2)
    last = SegmentWriter(storage, 0, 5, 1, publisher.next_position(5, segments))
    index = index_of(1)
    index["commit_ts"], index["size"], index["name"], index["kind"] = 5, 1, last.number("db", "t2"), EntryType.ROWDATA
    last.add(index, b"d")
    last.seal()
    last.publish()
    publisher.publish(0, 5, [*segments, last.name])
    found = EntryStoreReader(reopened()).read(Position(0, 0), 9, 99)
    assert [(e.position, bytes(e.data)) for e in found] == [
        (Position(4, 0), b"a"), (Position(5, 0), b"b"), (Position(5, 1), b"c"), (Position(5, 2), b"d"),
    ]  # fmt: skip


def test_a_reader_follows_the_head(reopened: Callable[..., Storage]) -> None:
    storage = reopened()
    publisher = StorePublisher(storage, "feed", 0)
    reader = EntryStoreReader(reopened())
    assert not reader.refresh()
    at = Position(0, 0)
    for step in range(1, 6):
        end = step * HOUR // 2
        published(publisher, storage, end - HOUR // 2, end, [(end - 1, b"x"), (end, b"y")])
        assert reader.read(at, 9, 99) == []
        assert reader.refresh()
        got = reader.read(at, 9, 99)
        assert [e.position.commit_ts for e in got] == [end - 1, end]
        at = got[-1].position


def test_nothing_of_an_unpublished_batch_is_seen(reopened: Callable[..., Storage]) -> None:
    storage = reopened()
    publisher = StorePublisher(storage, "feed", 0)
    written(storage, 0, 5, [(1, b"a")])
    assert everything(reopened()) == []
    written(storage, 5, 9, [(6, b"b")])
    publisher.publish(0, 9, publisher.attempt(0, 9, 1))
    assert everything(reopened()) == [(1, b"a"), (6, b"b")]


def test_missing_segments_are_an_error(reopened: Callable[..., Storage]) -> None:
    storage = reopened()
    publisher = StorePublisher(storage, "feed", 0)
    written(storage, 0, 5, [(1, b"a")])
    written(storage, 6, 9, [(7, b"a")])
    with pytest.raises(SinkError, match="between 5 and 6"):
        publisher.attempt(0, 9, 1)
    with pytest.raises(SinkError, match="end at 5"):
        publisher.attempt(0, 5 + 1, 1) or publisher.attempt(0, 5, 1)
    assert publisher.attempt(0, 9, 2) == []


class OldListings(MemoryStorage):
    """Shows files that are written from now on to who asks for them by name, but lists none of them while it is `behind`."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket)
        self._shown, self.behind = set(bucket.content), True

    def names(self, folder: str) -> list[str]:
        return [name for name in super().names(folder) if not self.behind or f"{folder}/{name}" in self._shown]


def test_an_attempt_whose_listing_lacks_a_task_is_repeated() -> None:
    bucket = Bucket()
    publisher = StorePublisher(MemoryStorage(bucket), "feed", 0)
    publisher._storage = old = OldListings(bucket)
    written(old, 0, 5, [(1, b"a"), (4, b"b")])
    with pytest.raises(SinkUnavailable, match="has 0 of 2 entries"):
        publisher.attempt(0, 5, 1, 2)
    old._shown = set(bucket.content)
    written(old, 5, 9, [(7, b"c")])
    with pytest.raises(SinkUnavailable, match="end at 5"):
        publisher.attempt(0, 9, 1, 3)
    old.behind = False
    assert len(publisher.attempt(0, 9, 1, 3)) == 2


def test_by_an_old_listing_nothing_is_read_or_removed() -> None:
    bucket = Bucket()
    storage = MemoryStorage(bucket)
    publisher = StorePublisher(storage, "feed", 0)
    published(publisher, storage, 0, 5, [(1, b"a")])
    old = OldListings(bucket)
    published(publisher, storage, 5, 9, [(7, b"b")])
    publisher.publish(9, 12, [])  # nothing happened
    reader = EntryStoreReader(old)
    with pytest.raises(LogUnavailable, match="no interval ends at 9"):
        reader.read(Position(0, 0), 10, 100)
    with pytest.raises(LogUnavailable, match="no interval ends at 9"):
        StorePublisher(old, "feed", 0)
    old.behind = False
    reader.refresh()
    assert [entry.data for entry in reader.read(Position(0, 0), 10, 100)] == [b"a", b"b"]
    last = StorePublisher(old, "feed", 0)
    last.publish(12, 15, [])
    assert (last.head, everything(storage)) == (15, [(1, b"a"), (7, b"b")])


def test_a_client_does_not_go_past_an_hour_whose_listing_is_old() -> None:
    """The head has gone on to the next hour."""
    bucket = Bucket()
    storage = MemoryStorage(bucket)
    publisher = StorePublisher(storage, "feed", 0)
    published(publisher, storage, 0, 5, [(1, b"a")])
    old = OldListings(bucket)
    published(publisher, storage, 5, 9, [(7, b"b")])
    published(publisher, storage, 9, HOUR + 9, [(HOUR + 7, b"c")])
    old._shown |= {name for name in bucket.content if name.startswith(f"entries/{names.hour_of(HOUR)}/")}
    reader = EntryStoreReader(old)
    after = Position(0, 0)
    with pytest.raises(LogUnavailable, match="no interval ends at 9"):
        reader.read(after, 10, 100)
    old.behind = False
    reader.refresh()
    assert [entry.data for entry in reader.read(after, 10, 100)] == [b"a", b"b", b"c"]
    assert [entry.data for entry in reader.read(Position(9, 0), 10, 100)] == [b"c"]


def test_a_failed_attempt_that_was_published_is_not_removed_by_an_old_listing() -> None:
    bucket = Bucket()
    old = OldListings(bucket)
    old.behind = False
    publisher = StorePublisher(old, "feed", 0)
    written(old, 0, 9, [(1, b"a")], epoch=1)
    old._shown = set(bucket.content)
    publisher.publish(0, 9, publisher.attempt(0, 9, 1))
    old.behind = True
    with pytest.raises(LogUnavailable, match="no interval ends at 9"):
        publisher.clear_attempt(0, 9, 1)
    assert everything(MemoryStorage(bucket)) == [(1, b"a")]


def test_another_changefeed_is_refused(reopened: Callable[..., Storage]) -> None:
    StorePublisher(reopened(), "feed", 5)
    with pytest.raises(ConfigError, match="belongs to changefeed 'feed'"):
        StorePublisher(reopened(), "other", 5)


def test_a_repeated_batch_is_known(reopened: Callable[..., Storage]) -> None:
    storage = reopened()
    publisher = StorePublisher(storage, "feed", 0)
    rows = rows_of(4, 0, 20, 50)
    published(publisher, storage, 0, 20, rows)
    again = StorePublisher(reopened(), "feed", 0)
    assert again.holds(0, 20)
    assert not again.holds(0, 21)
    # The same rows once more, in a batch that goes further: what is there is not repeated.
    more = rows_of(5, 20, 30, 20)
    storage = reopened()
    for low, high in ((10, 15), (15, 30)):
        written(storage, low, high, [row for row in rows + more if low < row[0] <= high], epoch=2)
    again.publish(10, 30, again.attempt(10, 30, 2))
    assert everything(reopened()) == rows + more


def test_a_fenced_owner_publishes_nothing(reopened: Callable[..., Storage]) -> None:
    storage = reopened()
    old = StorePublisher(storage, "feed", 0)
    written(storage, 0, 5, [(1, b"old")], epoch=1)
    segments = old.attempt(0, 5, 1)
    new = StorePublisher(reopened(), "feed", 0)
    with pytest.raises(TidemillError) as caught:
        old.publish(0, 5, segments)
    assert isinstance(caught.value, LogFenced | LogCorrupt)  # its segments are gone with it
    written(storage, 0, 5, [(1, b"new")], epoch=2)
    new.publish(0, 5, new.attempt(0, 5, 2))
    assert everything(reopened()) == [(1, b"new")]
    with pytest.raises(LogFenced):
        old.publish(5, 7, [])


def test_an_owner_that_wakes_up_late_changes_nothing() -> None:
    """On an object store a PUT that was under way appears although the store has another owner."""
    bucket = Bucket()
    frozen: list[Callable[[], None]] = []
    old = StorePublisher(MemoryStorage(bucket), "feed", 0)
    storage = MemoryStorage(bucket)
    written(storage, 0, 9, [(1, b"a"), (7, b"b")], epoch=1)
    kept = dict(bucket.content)
    late = IntervalName(0, 9, old.epoch)
    segment = str(old.attempt(0, 9, 1)[0])
    content = names.Interval([names.SegmentRef(segment, len(kept[f"entries/{segment}"]), 7)]).to_json()
    frozen.append(lambda: bucket.content.update({f"entries/{late}": content, **{k: v for k, v in kept.items() if k.endswith(".seg")}}))
    new = StorePublisher(MemoryStorage(bucket), "feed", 0)
    for low, high in ((0, 5), (5, 8)):
        written(storage, low, high, [row for row in [(1, b"a"), (7, b"b")] if low < row[0] <= high], epoch=2)
        new.publish(low, high, new.attempt(low, high, 2))
        for wake in frozen:
            wake()
        assert everything(MemoryStorage(bucket)) == [(1, b"a"), (7, b"b")][: 1 if high == 5 else 2]
    again = StorePublisher(MemoryStorage(bucket), "feed", 0)
    assert again.head == 8
    written(storage, 8, 12, [(11, b"c")], epoch=3)
    again.publish(8, 12, again.attempt(8, 12, 3))
    assert everything(MemoryStorage(bucket)) == [(1, b"a"), (7, b"b"), (11, b"c")]


def test_the_segments_of_an_announced_interval_stay_while_it_may_appear() -> None:
    """The next owner lists the store between the announcement and the PUT of the interval, and ends before it publishes anything."""
    bucket, rows = Bucket(), [(1, b"a"), (7, b"b")]
    others: list[StorePublisher] = []

    def gate(what: str, name: str) -> None:
        if names.parse_interval(name.rpartition("/")[2]) is not None and not others:
            others.append(StorePublisher(MemoryStorage(bucket), "feed", 0))

    old = StorePublisher(MemoryStorage(bucket, gate), "feed", 0)
    written(MemoryStorage(bucket), 0, 9, rows, epoch=1)
    with pytest.raises(LogFenced):
        old.publish(0, 9, old.attempt(0, 9, 1))
    assert others
    old.clear_attempt(0, 9, 1)
    last = StorePublisher(MemoryStorage(bucket), "feed", 0)
    assert last.head == 9
    assert everything(MemoryStorage(bucket)) == rows


def test_the_segments_of_an_interval_whose_put_is_under_way_stay() -> None:
    bucket, rows = Bucket(), [(1, b"a"), (7, b"b")]
    late: list[str] = []

    def gate(what: str, name: str) -> None:
        if names.parse_interval(name.rpartition("/")[2]) is not None and not late:
            late.append(name)
            raise LogUnavailable("no answer")

    old = StorePublisher(MemoryStorage(bucket, gate), "feed", 0)
    written(MemoryStorage(bucket), 0, 9, rows, epoch=1)
    attempt = old.attempt(0, 9, 1)
    content = names.Interval([names.SegmentRef(str(attempt[0]), len(bucket.content[f"entries/{attempt[0]}"]), 7)]).to_json()
    with pytest.raises(LogUnavailable):
        old.publish(0, 9, attempt)
    old.clear_attempt(0, 9, 1)
    bucket.put(late[0], content)
    assert StorePublisher(MemoryStorage(bucket), "feed", 0).head == 9
    assert everything(MemoryStorage(bucket)) == rows


@pytest.mark.parametrize("step", range(80))
def test_killed_at_any_request(step: int) -> None:
    """Whatever request is the last one, the next owner goes on, and each entry is there once."""
    bucket = Bucket()
    count = 0

    def gate(what: str, name: str) -> None:
        nonlocal count
        count += 1
        if count > step:
            raise _Killed

    rows = rows_of(6, 0, 40, 40)

    def deliver(storage: MemoryStorage, epoch: int) -> None:
        publisher = StorePublisher(storage, "feed", 0)
        for low in range(0, 40, 10):
            if not publisher.holds(low, low + 10):
                for start in (low, low + 4):
                    end = low + 4 if start == low else low + 10
                    written(storage, start, end, [row for row in rows if start < row[0] <= end], epoch)
                publisher.publish(low, low + 10, publisher.attempt(low, low + 10, epoch))

    try:
        deliver(MemoryStorage(bucket, gate), 1)
    except _Killed:
        if names.STORE in bucket.content:
            seen = everything(MemoryStorage(bucket))
            assert seen == rows[: len(seen)]
    deliver(MemoryStorage(bucket), 2)
    assert everything(MemoryStorage(bucket)) == rows


def test_a_client_behind_the_begin_is_told(reopened: Callable[..., Storage]) -> None:
    storage = reopened()
    publisher = StorePublisher(storage, "feed", 5)
    published(publisher, storage, 5, 20, [(9, b"a"), (15, b"b")])
    reader = EntryStoreReader(reopened())
    with pytest.raises(PositionGone, match="begins at"):
        reader.read(Position(4, 0), 9, 99)
    publisher.begin_at(12)
    reader.refresh()
    with pytest.raises(PositionGone):
        reader.read(Position(9, 0), 9, 99)
    assert [bytes(e.data) for e in reader.read(Position(12, 0), 9, 99)] == [b"b"]


def test_a_replay_fills_a_store_in_front(reopened: Callable[..., Storage]) -> None:
    storage = reopened()
    publisher = StorePublisher(storage, "feed", 10)
    published(publisher, storage, 10, 20, [(12, b"c"), (20, b"d")])
    reader = EntryStoreReader(reopened())
    filler = StorePublisher(storage, "replay", 2, fresh=True)
    published(filler, storage, 2, 6, [(5, b"a")])
    reader.refresh()
    assert reader.begins() == 10
    with pytest.raises(PositionGone):
        reader.read(Position(2, 0), 9, 99)
    published(filler, storage, 6, 15, [(8, b"b"), (12, b"c")])
    reader.refresh()
    assert (reader.begins(), reader.head()) == (2, 20)
    assert [bytes(e.data) for e in reader.read(Position(2, 0), 9, 99)] == [b"a", b"b", b"c", b"d"]
    assert StorePublisher(reopened(), "feed", 2).head == 20


def test_a_fresh_delivery_replaces_the_store(reopened: Callable[..., Storage]) -> None:
    storage = reopened()
    published(StorePublisher(storage, "replay", 0), storage, 0, 20, [(12, b"c")])
    again = StorePublisher(reopened(), "replay", 3, fresh=True)
    assert everything(reopened()) == []
    published(again, reopened(), 3, 9, [(4, b"x")])
    assert everything(reopened()) == [(4, b"x")]


def test_overlaps() -> None:
    first, late, second = IntervalName(0, 5, 2), IntervalName(0, 9, 1), IntervalName(5, 8, 2)
    assert valid_intervals([second, late, first], 0, 8) == [first, second]
    assert valid_intervals([late, second], 0, 9) == [second]
    with pytest.raises(LogCorrupt, match="overlap"):
        valid_intervals([IntervalName(0, 5, 1), IntervalName(3, 9, 1)], 0, 9)
