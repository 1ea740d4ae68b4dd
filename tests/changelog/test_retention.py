"""What retention removes, what holds it back, and the messages when the disk runs full."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.changelog.conftest import IDENTITY, META, Reopen
from tests.support.changelog.logs import START, golden, golden_log
from tests.support.changelog.small_segments import publish_small, read
from tidemill import tso
from tidemill.changelog import feeds, log_format
from tidemill.changelog.history import load_history
from tidemill.changelog.options import LogOptions
from tidemill.changelog.reader import LogReader
from tidemill.changelog.retention import Retention, between_ddls, snapshot_at
from tidemill.changelog.storage.open import Draft, LocalStorage, Storage
from tidemill.changelog.verify import verify
from tidemill.changelog.writer import LogWriter
from tidemill.errors import DiskLow, LogError, LogUnavailable, SegmentGone, StartTsOutOfLog
from tidemill.tidb.schema.tracking.history import SchemaHistory

HOUR = tso.compose(3_600_000)
KEEP = LogOptions(retention_ms=24 * 3_600_000, low_water_bytes=0, grace_s=0.0)


def hourly(log: LogWriter, hours: int) -> None:
    """A day and more, an hour a segment in every folder."""
    for hour in range(1, hours + 1):
        for writer in (log.schema, log.partition(0), log.partition(1)):
            writer.publish(START + hour * HOUR, [])


def files(place: Storage, folder: str = "rows/0") -> list[str]:
    return sorted(n for n in place.names(folder) if n.endswith(".arrow"))


def test_segments_older_than_the_retention_go_when_nobody_needs_them(reopened: Reopen) -> None:
    log = reopened(KEEP)
    hourly(log, 30)
    done = log.maintain(START + 30 * HOUR)
    assert done.start_ts == START + 6 * HOUR
    reader = LogReader(log.storage)
    assert reader.start_ts == START + 6 * HOUR
    assert reader.snapshots() == [START + 6 * HOUR]
    assert reader.read_snapshot(START + 6 * HOUR).to_pylist() == [{"key": k, "value": v} for k, v in META.items()]
    assert done.removed == 3 * 6 + 1
    for p in range(2):
        assert reader.chain(p, START + 6 * HOUR, START + 30 * HOUR)[0].from_ts == START + 6 * HOUR
    with pytest.raises(StartTsOutOfLog):
        reader.chain(0, START + 5 * HOUR, START + 7 * HOUR)
    log.close()
    again = LogWriter.open(log.storage, options=KEEP)
    assert again.partition(0).last_to == START + 30 * HOUR


def test_nothing_moves_for_a_trifle(reopened: Reopen) -> None:
    log = reopened(KEEP)
    hourly(log, 30)
    log.maintain(START + 30 * HOUR)
    assert log.maintain(START + 30 * HOUR + HOUR // 2).start_ts == START + 6 * HOUR
    assert log.maintain(START + 31 * HOUR).start_ts == START + 7 * HOUR


def test_a_feed_pins_what_it_still_needs(reopened: Reopen) -> None:
    log = reopened(KEEP)
    hourly(log, 30)
    slow = feeds.register(log.storage, "slow", START + 2 * HOUR)
    feeds.register(log.storage, "fast", START + 20 * HOUR)
    assert LogReader(log.storage).feeds() == {"slow": START + 2 * HOUR, "fast": START + 20 * HOUR}
    assert log.maintain(START + 30 * HOUR).start_ts == START + 2 * HOUR
    slow.update(START + 29 * HOUR)
    assert log.maintain(START + 30 * HOUR).start_ts == START + 6 * HOUR
    feeds.remove(log.storage, "slow")
    feeds.remove(log.storage, "fast")
    assert LogReader(log.storage).feeds() == {}


@pytest.mark.parametrize("content", [b"", b"{", b'{"checkpoint_ts":"x"}', b"{}"])
def test_a_feed_that_cannot_be_read_keeps_everything(reopened: Reopen, content: bytes) -> None:
    log = reopened(KEEP)
    hourly(log, 30)
    log.storage.replace("feeds/broken.json", content)
    assert log.maintain(START + 30 * HOUR).start_ts == START
    assert any("broken.json" in p.path for p in verify(log.storage).problems)


def test_a_feed_that_comes_too_late_is_refused_and_not_kept(reopened: Reopen) -> None:
    log = reopened(KEEP)
    hourly(log, 30)
    log.maintain(START + 30 * HOUR)
    with pytest.raises(StartTsOutOfLog, match=f"late.*{START + HOUR}"):
        feeds.register(log.storage, "late", START + HOUR)
    assert LogReader(log.storage).feeds() == {}
    feeds.register(log.storage, "late", START + 8 * HOUR)
    with pytest.raises(StartTsOutOfLog):
        feeds.register(log.storage, "late", START + HOUR)
    assert LogReader(log.storage).feeds() == {"late": START + 8 * HOUR}
    with pytest.raises(LogError, match="id"):
        feeds.register(log.storage, "../late", START + 8 * HOUR)


class _FeedComesMeanwhile(LocalStorage):
    """A feed registers just before log.json says that the log begins later."""

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        if name == log_format.IDENTITY and self.read("feeds/new.json") is None:
            super().replace("feeds/new.json", log_format.format_ts_file("checkpoint_ts", START + HOUR))
        super().replace(name, data, durable=durable)


def test_retention_takes_its_step_back_for_a_feed_that_comes_meanwhile(tmp_path: Path) -> None:
    with LogWriter.create(LocalStorage(tmp_path, sync=False), IDENTITY, snapshot={}) as log:
        hourly(log, 30)
    with LogWriter.open(_FeedComesMeanwhile(tmp_path, sync=False), options=KEEP) as log:
        log.maintain(START + 30 * HOUR)
    reader = LogReader(tmp_path)
    assert reader.start_ts == START
    assert len(reader.chain(0, START + HOUR, START + 30 * HOUR)) == 29


class _AwayAfterTheStep(LocalStorage):
    """A feed registers while retention works, and the storage is away for the request that follows the write of log.json."""

    is_away = wrote = False

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        if name == log_format.IDENTITY and not self.wrote:
            feeds.register(LocalStorage(self.location, sync=False), "new", START + HOUR)
            self.is_away = self.wrote = True
        super().replace(name, data, durable=durable)

    def names(self, folder: str) -> list[str]:
        if folder == log_format.FEEDS and self.is_away:
            self.is_away = False
            raise LogUnavailable("away for a moment")
        return super().names(folder)


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("grace_s", [0.0, 600.0])
def test_a_step_that_was_not_taken_back_is_taken_back_later(tmp_path: Path, grace_s: float, *, killed: bool) -> None:
    keep = replace(KEEP, grace_s=grace_s)
    with LogWriter.create(LocalStorage(tmp_path, sync=False), IDENTITY, snapshot=META) as log:
        hourly(log, 30)
    with LogWriter.open(_AwayAfterTheStep(tmp_path, sync=False), options=keep) as log:
        with pytest.raises(LogUnavailable):
            log.maintain(START + 30 * HOUR)
        assert LogReader(tmp_path).start_ts == START + 6 * HOUR
        if not killed:
            assert log.maintain(START + 30 * HOUR).start_ts == START
    with LogWriter.open(LocalStorage(tmp_path, sync=False), options=keep) as log:
        for _ in range(3):
            assert log.maintain(START + 30 * HOUR).start_ts <= START + HOUR
        assert len(LogReader(tmp_path).chain(0, START + HOUR, START + 30 * HOUR)) == 29
        assert log.maintain(START + 30 * HOUR).start_ts == START + HOUR, "as far as the feed is"
    assert verify(tmp_path).problems == []


def test_the_start_does_not_go_back_to_where_files_are_gone(reopened: Reopen) -> None:
    """Not for a changefeed that was forgotten while it ran, and says where it is."""
    log = reopened(KEEP)
    hourly(log, 30)
    assert log.maintain(START + 30 * HOUR).removed == 19
    log.storage.replace("feeds/forgotten.json", log_format.format_ts_file("checkpoint_ts", START + HOUR))
    assert log.maintain(START + 40 * HOUR).start_ts == START + 6 * HOUR
    log.storage.replace(
        "schema/" + log_format.snapshot_name(START), log.storage.read("schema/" + log_format.snapshot_name(START + 6 * HOUR)) or b""
    )
    assert log.maintain(START + 40 * HOUR).start_ts == START + 6 * HOUR, "a snapshot alone is not enough"


def test_a_replay_that_was_killed_holds_the_log_for_an_hour(reopened: Reopen) -> None:
    log = reopened(KEEP)
    hourly(log, 30)
    name = "replay.0af1"
    feeds.register(log.storage, name, START + 2 * HOUR)
    feeds.register(log.storage, "changefeed", START + 4 * HOUR)
    assert log.maintain(START + 30 * HOUR).start_ts == START + 2 * HOUR
    reader, now = LogReader(log.storage), time.time()
    assert not Retention(log, clock=lambda: now + 3500).advance(reader, START + 30 * HOUR)
    assert Retention(log, clock=lambda: now + 3700).advance(reader, START + 30 * HOUR)
    assert reader.feeds() == {"changefeed": START + 4 * HOUR}
    assert reader.start_ts == START + 4 * HOUR


def test_a_clock_that_is_set_ahead_takes_nothing_from_a_replay(reopened: Reopen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor files from a reader that is in the middle of them."""
    log = reopened(replace(KEEP, grace_s=600.0))
    hourly(log, 30)
    retention, now = Retention(log), time.time()
    reader = LogReader(log.storage)
    feeds.register(log.storage, feeds.REPLAY + "x", START + 2 * HOUR)  # type: ignore[arg-type]
    monkeypatch.setattr(time, "time", lambda: now + 86_400)
    assert retention.clock() < now + 600
    retention.advance(reader, START + 30 * HOUR)
    assert feeds.REPLAY + "x" in reader.feeds()
    assert retention.sweep() == 0


def test_files_stay_a_while_behind_the_start(reopened: Reopen) -> None:
    log = reopened(LogOptions(retention_ms=KEEP.retention_ms, low_water_bytes=0, grace_s=600))
    hourly(log, 30)
    reader = LogReader(log.storage)
    listed = reader.chain(0, START, START + HOUR)
    done = log.maintain(START + 30 * HOUR)
    assert (done.start_ts, done.removed) == (START + 6 * HOUR, 0)
    reader.open_segment(listed[0].parts[0])
    late = Retention(log, clock=lambda: 1e12)
    assert late.sweep() == 19
    with pytest.raises(SegmentGone):
        reader.open_segment(listed[0].parts[0])
    assert verify(log.storage).problems == []


def test_an_idle_log_can_begin_behind_all_its_segments(reopened: Reopen) -> None:
    log = reopened(KEEP)
    hourly(log, 2)
    for writer in (log.schema, log.partition(0), log.partition(1)):
        writer.set_head(START + 50 * HOUR)
    assert log.maintain(START + 50 * HOUR).start_ts == START + 26 * HOUR
    assert files(log.storage) == []
    log.close()
    again = LogWriter.open(log.storage, options=KEEP)
    assert (again.partition(0).last_to, again.partition(0).head) == (START + 26 * HOUR, START + 50 * HOUR)
    publish_small(again, 0)
    again.partition(0).publish(START + 51 * HOUR, [])
    assert len(LogReader(log.storage).chain(0, START + 30 * HOUR, START + 51 * HOUR)) == 1
    assert read(LogReader(log.storage), START + 26 * HOUR) == []


def test_a_writer_that_stayed_open_goes_on_behind_what_was_dropped(reopened: Reopen) -> None:
    log = reopened(KEEP)
    hourly(log, 2)
    for writer in (log.schema, log.partition(0), log.partition(1)):
        writer.set_head(START + 50 * HOUR)
    log.maintain(START + 50 * HOUR)
    log.partition(0).publish(START + 51 * HOUR, [])
    assert len(LogReader(log.storage).chain(0, START + 26 * HOUR, START + 51 * HOUR)) == 1
    assert verify(log.storage).problems == []


# ---- schema snapshots


@pytest.mark.slow
@pytest.mark.parametrize("cuts", [3, pytest.param(8, marks=pytest.mark.thorough("more places to cut the same log at"))])
def test_a_new_snapshot_is_the_schema_of_its_time(tmp_path: Path, cuts: int) -> None:
    recorded = golden()
    reader = LogReader(golden_log(tmp_path, segments=6))
    whole = load_history(reader)
    for cut in recorded.ends(cuts + 1)[:-1]:
        start = between_ddls(whole, cut)
        assert start <= cut
        later = SchemaHistory.bootstrap(start, snapshot_at(reader, start).items())
        later.advance(reader.read_schema(start, recorded.last_ts), recorded.last_ts)
        assert _tables(later, start) == _tables(whole, start)
        assert _tables(later, recorded.last_ts) == _tables(whole, recorded.last_ts)
        assert _events(later, start, recorded.last_ts) == _events(whole, start, recorded.last_ts)


def test_a_snapshot_before_a_start_that_another_writer_has_moved_is_told_as_gone(reopened: Reopen) -> None:
    """A writer that was frozen meanwhile: its own start is older."""
    log = reopened(KEEP)
    hourly(log, 2)
    for writer in (log.schema, log.partition(0), log.partition(1)):
        writer.set_head(START + 50 * HOUR)
    log.maintain(START + 50 * HOUR)
    reader = LogReader(log.storage)
    assert reader.start_ts > START + HOUR
    with pytest.raises(SegmentGone, match="begins at"):
        snapshot_at(reader, START + HOUR)


def _tables(history: SchemaHistory, ts: int) -> dict[int, tuple[str, str, tuple[int, ...]]]:
    return {i: (v.schema, v.table, v.physical_ids) for i, v in history.snapshot(ts).tables.items()}


def _events(history: SchemaHistory, from_ts: int, to_ts: int) -> list[tuple[int, int, str]]:
    return [(e.ts, e.job_id, e.query) for e in history.ddl_events(from_ts, to_ts)]


def test_retention_of_a_real_history_leaves_a_whole_log(tmp_path: Path) -> None:
    recorded = golden()
    golden_log(tmp_path, partitions=2, segments=12)
    end = recorded.last_ts + 1
    before = load_history(LogReader(tmp_path))
    options = LogOptions(retention_ms=tso.physical_ms(end - recorded.start_ts) // 2, low_water_bytes=0, grace_s=0.0)
    with LogWriter.open(tmp_path, options=options) as log:
        done = log.maintain(end)
    assert recorded.start_ts < done.start_ts < end
    report = verify(tmp_path)
    assert report.problems == []
    assert report.start_ts == done.start_ts
    after = load_history(LogReader(tmp_path))
    assert after.start_ts == done.start_ts
    assert _tables(after, end) == _tables(before, end)
    assert _events(after, done.start_ts, end) == _events(before, done.start_ts, end)


# ---- room


class _Small(LocalStorage):
    free = 100 << 20

    def free_bytes(self) -> int | None:
        return self.free


def test_below_the_low_water_mark_the_feed_that_pins_the_log_is_named(tmp_path: Path) -> None:
    place = _Small(tmp_path, sync=False)
    log = LogWriter.create(place, IDENTITY, snapshot={}, options=LogOptions(low_water_bytes=50 << 20))
    hourly(log, 3)
    feeds.register(place, "nightly", START + HOUR)
    feeds.register(place, "other", START + 2 * HOUR)
    place.free = 40 << 20
    with pytest.raises(DiskLow, match=r"40 MiB left.*50 MiB.*changefeed nightly.*7200 s behind") as e:
        log.partition(0).publish(START + 4 * HOUR, [])
    assert "nightly" in e.value.hint
    assert e.value.retryable
    assert str(log.maintain(START + 4 * HOUR).low) == str(e.value)
    assert log.partition(0).last_to == START + 3 * HOUR
    feeds.remove(place, "nightly")
    feeds.remove(place, "other")
    with pytest.raises(DiskLow, match="no changefeed"):
        log.partition(0).publish(START + 4 * HOUR, [])
    with pytest.raises(DiskLow, match="no log is created there"):
        LogWriter.create(_Small(tmp_path / "another", sync=False), IDENTITY, options=LogOptions(low_water_bytes=1 << 60))
    place.free = 60 << 20
    log.partition(0).publish(START + 4 * HOUR, [])
    assert log.maintain(START + 4 * HOUR).low is None


def test_below_the_low_water_mark_retention_goes_on_and_nothing_is_joined(tmp_path: Path) -> None:
    place = _Small(tmp_path, sync=False)
    with LogWriter.create(place, IDENTITY, snapshot=META, options=LogOptions(low_water_bytes=0)) as log:
        for day in range(1, 5):
            for writer in (log.schema, log.partition(0), log.partition(1)):
                writer.publish(START + day * 24 * HOUR, [])
    place.free = 0
    with LogWriter.open(place, options=LogOptions(low_water_bytes=1 << 60, grace_s=0.0, compact_rows=1)) as log:
        done = log.maintain(START + 4 * 24 * HOUR)
        assert (done.start_ts, done.removed, done.joined) == (START + 3 * 24 * HOUR, 3 * 3 + 1, 0)
        assert done.low is not None
    assert [len(files(place, folder)) for folder in ("rows/0", "rows/1")] == [1, 1]
    assert verify(place).problems == []


class _Full(LocalStorage):
    """A disk without a byte left."""

    def draft(self, folder: str) -> Draft:
        raise DiskLow("no room")

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        raise DiskLow("no room")


def test_on_a_disk_without_a_byte_left_files_before_the_start_go(tmp_path: Path) -> None:
    place = LocalStorage(tmp_path, sync=False)
    with LogWriter.create(place, IDENTITY, snapshot=META, options=KEEP) as log:
        hourly(log, 30)
        log.options = replace(KEEP, grace_s=3600)
        assert log.maintain(START + 30 * HOUR).removed == 0
        log.options = KEEP
        before = len(files(place))
        place.__class__ = _Full
        with pytest.raises(DiskLow):
            log.maintain(START + 40 * HOUR)
        assert len(files(place)) == before - 6


def test_the_message_gives_no_password(tmp_path: Path) -> None:
    place = _Small(tmp_path, sync=False)
    log = LogWriter.create(place, IDENTITY, options=LogOptions(low_water_bytes=1))
    place.free = 0
    place.location = f"s3://key:pass@{tmp_path}"
    with pytest.raises(DiskLow) as e:
        log.check_room()
    assert not re.search("pass@", str(e.value))
