"""The clock of a changefeed on storage where each look is a request, and on storage that is away."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.changelog.conftest import META
from tests.support.changelog.logs import START, batch_of, put
from tests.support.changelog.memory_storage import Bucket, MemoryStorage
from tidemill.changelog.log_format import LogIdentity
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import LocalStorage
from tidemill.changelog.writer import LogWriter
from tidemill.delivery.position import Position
from tidemill.errors import LogUnavailable
from tidemill.spark import offset_source
from tidemill.spark.offset_source import AWAY_POLL_S, IDLE_POLL_S, OffsetReader, Pace
from tidemill.tso import compose


class Place(MemoryStorage):
    """An object store that counts requests and may be away."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket, self._ask)
        self.asked: Counter[str] = Counter()
        self.is_away = False

    def _ask(self, what: str, name: str) -> None:
        self.asked[name.rpartition("/")[2]] += 1
        if self.is_away:
            raise LogUnavailable(f"{name} cannot be reached now")


class Time:
    """Seconds that pass only when they are told to."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr(offset_source, "time", found)
    monkeypatch.setattr(Pace.__init__, "__defaults__", (found.monotonic,))
    return found


def made(storage: MemoryStorage | LocalStorage, partitions: int = 4) -> LogWriter:
    return LogWriter.create(storage, LogIdentity("1", START, partitions), snapshot=META)


def reader_of(storage: MemoryStorage | LocalStorage, monkeypatch: pytest.MonkeyPatch) -> OffsetReader:
    monkeypatch.setattr("tidemill.changelog.reader.open_storage", lambda location: storage)
    return OffsetReader("memory://log", Position(START), 0, 1000)


def move(writer: LogWriter, ts: int) -> None:
    for p in writer.partitions:
        writer.partition(p).set_head(ts)
    writer.schema.set_head(ts)


def ticks(reader: OffsetReader, time: Time, start: int, seconds: float) -> int:
    """Ask as often as Spark does, for this long, and return where the batch ends then."""
    end = time.now + seconds
    while time.now < end:
        found = reader.latestOffset({"ts": start})["ts"]
        if found != start:
            return found
        time.now += 0.05
    return start


def test_an_idle_clock_on_an_object_store_asks_for_one_head_every_few_seconds(time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = Bucket()
    writer, place = made(MemoryStorage(bucket)), Place(bucket)
    reader = reader_of(place, monkeypatch)
    at = START + compose(1000)
    move(writer, at)
    assert ticks(reader, time, START, 5) == at
    assert ticks(reader, time, at, 60) == at
    place.asked.clear()
    assert ticks(reader, time, at, 600) == at
    assert set(place.asked) == {"head.json"}
    assert place.asked["head.json"] <= 600 / IDLE_POLL_S + 1, "12,000 looks at 5 heads before"
    move(writer, at + compose(1000))
    assert ticks(reader, time, at, IDLE_POLL_S + 0.1) == at + compose(1000)


def test_a_clock_that_follows_a_capture_lags_little_on_an_object_store(time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = Bucket()
    writer, place = made(MemoryStorage(bucket)), Place(bucket)
    reader = reader_of(place, monkeypatch)
    at = START
    for _ in range(20):
        move(writer, at + compose(1000))
        began = time.now
        assert ticks(reader, time, at, 5) == at + compose(1000)
        assert time.now - began <= 1.2
        at += compose(1000)
        time.now = max(time.now, began + 1.0)


def test_on_a_local_disk_every_look_counts(time: Time, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    place = LocalStorage(f"{tmp_path}/log", sync=False)
    writer = made(place)
    reader = reader_of(place, monkeypatch)
    at = START + compose(1000)
    move(writer, at)
    assert ticks(reader, time, START, 5) == at
    assert ticks(reader, time, at, 60) == at
    move(writer, at + compose(1000))
    assert reader.latestOffset({"ts": at}) == {"ts": at + compose(1000)}, "without a pause"
    writer.close()


def test_storage_that_is_away_ends_no_query_and_is_looked_for_ever_more_rarely(time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = Bucket()
    writer, place = made(MemoryStorage(bucket)), Place(bucket)
    reader = reader_of(place, monkeypatch)
    place.is_away = True
    assert ticks(reader, time, START, 30) == START, "also before anything was read"
    place.is_away = False
    at = START + compose(1000)
    writer.partition(0).publish(at, [batch_of([put(7, 1, START + 1)])])
    move(writer, at)
    assert ticks(reader, time, START, AWAY_POLL_S + 1) == at
    place.is_away = True
    place.asked.clear()
    assert ticks(reader, time, at, 3600) == at
    assert place.asked.total() <= 3600 / AWAY_POLL_S + 6
    place.is_away = False
    move(writer, at + compose(1000))
    assert ticks(reader, time, at, AWAY_POLL_S + 1) == at + compose(1000)


def test_the_head_that_was_behind_is_looked_at_first() -> None:
    bucket = Bucket()
    writer, place = made(MemoryStorage(bucket)), Place(bucket)
    move(writer, START + 50)
    reader = LogReader(place)
    assert reader.resolved_ts_if_above(START) == START + 50
    for p in (0, 1, 3):
        writer.partition(p).set_head(START + 60)
    writer.schema.set_head(START + 70)
    assert reader.resolved_ts_if_above(START + 50) == START + 50
    place.asked.clear()
    for _ in range(5):
        assert reader.resolved_ts_if_above(START + 50) == START + 50
    assert place.asked["head.json"] == 5
    writer.partition(2).set_head(START + 55)
    assert reader.resolved_ts_if_above(START + 50) == START + 55 == reader.resolved_ts()
