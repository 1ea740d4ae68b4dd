"""How a changefeed waits for the log: on storage where each look is a request, and on a disk that tells of changes."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.changelog.conftest import META
from tests.support.changelog.logs import START
from tests.support.changelog.memory_storage import Bucket, MemoryStorage
from tidemill.changelog.history import load_history
from tidemill.changelog.log_format import HEAD, LogIdentity
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import LocalStorage
from tidemill.changelog.writer import LogWriter
from tidemill.delivery.clock import Clock
from tidemill.delivery.inputs import log_heads
from tidemill.delivery.inputs.log_heads import IDLE_POLL_S, MISSES, Pace, PolledHeads, ToldHeads, heads_of
from tidemill.delivery.position import Position
from tidemill.process.file_events import FileEvents
from tidemill.tso import compose


class Place(MemoryStorage):
    """An object store that counts requests."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket, self._ask)
        self.asked: Counter[str] = Counter()

    def _ask(self, what: str, name: str) -> None:
        self.asked[name.rpartition("/")[2]] += 1


class Time(threading.Event):
    """Seconds that pass while somebody waits for the stop."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0.0
        return False


def made(storage: MemoryStorage | LocalStorage, partitions: int = 4) -> LogWriter:
    return LogWriter.create(storage, LogIdentity("1", START, partitions), snapshot=META)


def move(writer: LogWriter, ts: int) -> None:
    for p in writer.partitions:
        writer.partition(p).set_head(ts)
    writer.schema.set_head(ts)


class Waiting:
    """A changefeed that waits at a position."""

    def __init__(self, place: Place) -> None:
        self.time = Time()
        reader = LogReader(place)
        self.clock = Clock(reader, load_history(reader, from_ts=START), Position(START), trigger_s=1.0, seconds=self.time.monotonic)
        self.heads = PolledHeads(self.clock, self.time, 0.5, self.time.monotonic)

    def until(self, at: int, seconds: float) -> int:
        """Look and wait for this long, and return where the batch ends then."""
        end, begin = self.time.now + seconds, Position(at)
        while self.time.now < end:
            found = self.clock.next(begin)
            if found != begin:
                return found.ts
            self.heads.wait(*self.clock.until_due(begin))
        return at


def test_an_idle_changefeed_on_an_object_store_asks_for_one_head_every_few_seconds() -> None:
    bucket = Bucket()
    writer, place = made(MemoryStorage(bucket)), Place(bucket)
    feed = Waiting(place)
    at = START + compose(1000)
    move(writer, at)
    assert feed.until(START, 5) == at
    assert feed.until(at, 60) == at
    place.asked.clear()
    assert feed.until(at, 600) == at
    assert set(place.asked) == {HEAD}
    assert place.asked[HEAD] <= 600 / IDLE_POLL_S + 1
    move(writer, at + compose(1000))
    assert feed.until(at, IDLE_POLL_S + 0.1) == at + compose(1000)


def test_one_that_follows_a_capture_lags_little_on_an_object_store() -> None:
    bucket = Bucket()
    writer, place = made(MemoryStorage(bucket)), Place(bucket)
    feed = Waiting(place)
    at = START
    for _ in range(20):
        move(writer, at + compose(1000))
        began = feed.time.now
        assert feed.until(at, 5) == at + compose(1000)
        assert feed.time.now - began <= 1.2
        at += compose(1000)
        feed.time.now = max(feed.time.now, began + 1.0)


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
    assert place.asked[HEAD] == 5
    writer.partition(2).set_head(START + 55)
    assert reader.resolved_ts_if_above(START + 50) == START + 55 == reader.resolved_ts()


def test_before_a_trigger_has_passed_the_head_that_is_behind_is_enough() -> None:
    bucket = Bucket()
    writer, place = made(MemoryStorage(bucket)), Place(bucket)
    feed = Waiting(place)
    at = START + compose(1000)
    move(writer, at)
    assert feed.clock.next(Position(START)).ts == at
    move(writer, at + compose(500))
    feed.clock.next(Position(at))
    place.asked.clear()
    assert feed.clock.next(Position(at)) == Position(at)
    assert place.asked[HEAD] == 1
    move(writer, at + compose(1000))
    writer.partition(2).set_head(at + compose(2000))
    assert feed.clock.next(Position(at)).ts == at + compose(1000), "a trigger further in the log, and no head is passed"


def test_storage_that_is_away_is_looked_for_ever_more_rarely() -> None:
    time = Time()
    pace = Pace(0.5, time.monotonic)
    pauses = []
    for _ in range(7):
        pace.failed()
        pauses.append(pace.next_poll - time.now)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    pace.polled(moved=True, begins=True)
    assert pace.next_poll == 0


# ---- told by the file system


def local(folder: Path, stop: threading.Event, stack: ExitStack) -> tuple[LogWriter, Clock, PolledHeads | ToldHeads]:
    writer = made(LocalStorage(str(folder / "log"), sync=False))
    reader = LogReader(folder / "log")
    clock = Clock(reader, load_history(reader, from_ts=START), Position(START), trigger_s=1.0)
    return writer, clock, heads_of(stack, reader, clock, stop)


def test_a_head_that_is_replaced_ends_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a file of another name wakes it, and does not end it."""
    monkeypatch.setattr(log_heads, "LOOK_S", 60.0)
    stop = threading.Event()
    with ExitStack() as stack:
        writer, clock, heads = local(tmp_path, stop, stack)
        assert isinstance(heads, ToldHeads)
        begin = Position(START)
        assert clock.next(begin) == begin
        waiting = threading.Thread(target=heads.wait, args=clock.until_due(begin))
        waiting.start()
        writer.storage.replace("rows/1/other.json", b"{}")
        waiting.join(0.2)
        assert waiting.is_alive()
        move(writer, START + compose(1000))
        waiting.join(120)
        assert not waiting.is_alive()
        assert clock.next(begin).ts == START + compose(1000)
        begin = Position(START + compose(1000))
        assert clock.next(begin) == begin
        waiting = threading.Thread(target=heads.wait, args=clock.until_due(begin))
        waiting.start()
        stop.set()
        waiting.join(120)
        assert not waiting.is_alive()
        writer.close()


def test_files_that_are_moved_into_a_folder_are_told(tmp_path: Path) -> None:
    with FileEvents() as events:
        (tmp_path / "new").mkdir()
        events.watch(tmp_path / "new")
        (tmp_path / "draft").write_text("{}")
        (tmp_path / "draft").replace(tmp_path / "new" / HEAD)
        assert events.wait(HEAD, 30)
        assert not events.wait(HEAD, 0)
        with pytest.raises(OSError, match="No such file"):
            events.watch(tmp_path / "missing")


class Deaf(FileEvents):
    """A file system that tells of nothing, as a network file system of what another machine writes."""

    waits = 0

    def wait(self, name: str, seconds: float) -> bool:
        Deaf.waits += 1
        return False


def test_a_file_system_that_does_not_tell_is_looked_at_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_heads, "LOOK_S", 0.0)
    monkeypatch.setattr(log_heads, "FileEvents", Deaf)
    stop = threading.Event()
    with ExitStack() as stack:
        writer, clock, heads = local(tmp_path, stop, stack)
        at = START
        for _ in range(MISSES + 1):
            assert clock.next(Position(at)) == Position(at)
            heads.wait(*clock.until_due(Position(at)))
            at += compose(1000)
            move(writer, at)
        assert clock.next(Position(at)) == Position(at)
        monkeypatch.setattr(log_heads, "LOOK_S", 1000.0)
        heads.wait(*clock.until_due(Position(at)))
        assert Deaf.waits == 0, "it is not listened to any more"
        writer.close()
