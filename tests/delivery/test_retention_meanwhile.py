"""Retention while rows are delivered: a replay holds the log, and what has been passed is an error, never left out silently."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.changelog.logs import START
from tests.support.delivery.deliveries import settings
from tests.support.delivery.feeds import World
from tidemill.changefeed import replay as module
from tidemill.changefeed.replay import Delivered, replay
from tidemill.changelog import feeds
from tidemill.changelog.files.bounds import begin_of_changes
from tidemill.changelog.history import load_history
from tidemill.changelog.options import LogOptions
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import LocalStorage
from tidemill.changelog.writer import LogWriter
from tidemill.delivery.inputs.log_source import next_end, next_position
from tidemill.delivery.machine.actions import Report
from tidemill.delivery.position import Position
from tidemill.errors import LogRefused, StartTsOutOfLog

STEP = 60


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A log of many files, which a replay delivers in many batches."""

    def short(reader: LogReader, history: object, at: int, target: int, sync_points: int) -> int:
        return next_end(reader, history, at, min(target, at + STEP), sync_points)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "next_end", short)
    monkeypatch.setattr(feeds, "TELL_EVERY_S", 0.0)
    return World.make().log(tmp_path / "log", partitions=2, segments=30)


class Capture:
    """What captures the log: it keeps only what feeds need."""

    def __init__(self, log: str) -> None:
        self.storage = LocalStorage(log, sync=False)
        self.writer = LogWriter.open(self.storage, options=LogOptions(retention_ms=0, low_water_bytes=0, grace_s=0.0))
        self.starts: list[int] = []
        self.at = START

    def maintain(self, report: Report) -> None:
        self.at = report.to_ts
        self.starts.append(self.writer.maintain(self.writer.resolved_ts).start_ts)

    def forget_all(self, report: Report) -> None:
        for feed in LogReader(self.storage).feeds():
            feeds.remove(self.storage, feed)
        self.maintain(report)


def test_the_log_waits_for_a_replay(log: str, tmp_path: Path) -> None:
    whole = replay(log, settings(tmp_path / "alone"))
    capture = Capture(log)
    done = replay(log, settings(tmp_path / "beside"), on_batch=capture.maintain)
    assert done == whole
    assert (tmp_path / "beside").read_bytes() == (tmp_path / "alone").read_bytes()
    assert len(capture.starts) > 3
    assert START < capture.starts[-1] < done.to_ts, "it may go as far as the replay is done"
    assert LogReader(log).feeds() == {}
    assert capture.writer.maintain(done.to_ts).start_ts == done.to_ts


def test_a_replay_that_fails_does_not_hold_the_log(log: str, tmp_path: Path) -> None:
    def fail(report: Report) -> None:
        (name,) = LogReader(log).feeds()
        assert feeds.is_passing(name)
        raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        replay(log, settings(tmp_path / "out"), on_batch=fail)
    assert LogReader(log).feeds() == {}


def test_a_replay_that_is_forgotten_ends_with_an_error(log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "TELL_EVERY_S", 1e9)
    with pytest.raises(StartTsOutOfLog, match="lies before it"):
        replay(log, settings(tmp_path / "out"), on_batch=Capture(log).forget_all)


def test_a_log_that_only_can_be_read(log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    class ReadOnly(LocalStorage):
        def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
            raise LogRefused("only for reading")

    def run(out: str, capture: Capture | None) -> Delivered:
        if capture is None:
            return replay(log, settings(tmp_path / out))
        return replay(log, settings(tmp_path / out), on_batch=capture.maintain)

    capture = Capture(log)
    monkeypatch.setattr(module, "LogReader", lambda place: LogReader(ReadOnly(place, sync=False)))
    assert run("alone", None).rows
    assert "does not wait for this replay" in caplog.text
    with pytest.raises(StartTsOutOfLog, match="lies before it"):
        run("beside", capture)


def test_a_changefeed_below_the_start(log: str) -> None:
    """Whether its partitions go together or by themselves."""
    capture = Capture(log)
    reader = LogReader(log)
    history = load_history(reader)
    end = capture.writer.maintain(capture.writer.resolved_ts).start_ts
    reader.identity_now()
    for at in (START, end - 2, end - 1):
        assert begin_of_changes(reader, at) == at, "no tables stand at this start"
        with pytest.raises(StartTsOutOfLog):
            next_end(reader, history, at, end)
        with pytest.raises(StartTsOutOfLog):
            next_position(reader, history, Position(at), [end, end])
        with pytest.raises(StartTsOutOfLog):
            feeds.register(log, "f", begin_of_changes(reader, at))
