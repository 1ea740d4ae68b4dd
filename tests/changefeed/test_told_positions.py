"""What the log is told of a changefeed is durable: whatever a process has delivered or passed over when it dies, the next one can begin."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.changelog.logs import build_log, put
from tidemill import tso
from tidemill.changefeed import progress as module
from tidemill.changefeed.changefeed import Changefeed
from tidemill.changefeed.feed_folder import FeedIdentity
from tidemill.changefeed.runner import changefeed_of
from tidemill.changefeed.runner_options import Options
from tidemill.changelog import feeds
from tidemill.changelog.options import LogOptions
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage import durable
from tidemill.changelog.storage.open import Draft, LocalStorage
from tidemill.changelog.writer import LogWriter
from tidemill.config.file import parse_config
from tidemill.delivery.machine.actions import Report
from tidemill.delivery.work_item import TaskStats
from tidemill.errors import DiskLow
from tidemill.server.host.feed import HostedFeed, Shared

HOUR = tso.compose(3_600_000)
NOW = 1000 * HOUR
START = NOW - 72 * HOUR


def changefeed_in(folder: Path, log: str, *, hosted: bool) -> Changefeed:
    options = Options("f", log, folder / "data", "blackhole://", parse_config(""), "UTC", None, None, None, 1000, 10.0)
    shared = Shared(lambda: None, None, lambda line: None)  # type: ignore[arg-type,return-value]
    changefeed = HostedFeed(options, 1, shared).changefeed if hosted else changefeed_of(options, threading.Event())
    changefeed.folder.settle(FeedIdentity("f", "1", log, "blackhole:", {}, "UTC", START), start_given=True)
    return changefeed


@pytest.mark.parametrize("hosted", [False, True], ids=["run", "server"])
def test_retention_never_passes_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, hosted: bool) -> None:
    """It dies after some batches and passed intervals, at any of them; then retention takes what it may."""
    monkeypatch.setattr(module, "REPORT_S", float("inf"))  # the test says when it is due
    rows = [put(70, 1, START + HOUR), put(70, 2, NOW - 1000)]
    ends = [*(START + k * 6 * HOUR for k in range(1, 12)), NOW]
    for seed in range(8):
        random = Random(seed)
        folder = tmp_path / str(seed)
        log = str(build_log(folder / "log", rows, start_ts=START, ends=ends))
        feed = changefeed_in(folder, log, hosted=hosted)
        feed.progress.register(feeds.register(log, "f", tso.SavedTs(START)))
        at = START
        for number in range(random.randrange(4, 40)):
            end = at + HOUR // random.choice((1, 6))
            report = Report(number, at, end, 1, 1, TaskStats(-1), ())
            if random.random() < 0.2:
                feed.progress.save(report)
            else:
                feed.progress.passed(report)
            if feed.progress._batches_pending and random.random() < 0.2:
                feed.progress.flush()
            at = end
            assert LogReader(log).feeds()["f"] <= (feed.folder.checkpoint() or START)
        with LogWriter.open(log, options=LogOptions(low_water_bytes=0)) as writer:
            writer.maintain(NOW)
        feeds.register(log, "f", feed.folder.checkpoint() or tso.SavedTs(START), epoch=1)  # as the next process does


@pytest.mark.parametrize("hosted", [False, True], ids=["run", "server"])
def test_a_checkpoint_that_finds_no_room_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, hosted: bool) -> None:
    """The data directory is full: the changefeed's process goes on as soon as there is room."""
    log = str(build_log(tmp_path / "log", [], start_ts=START, ends=[NOW]))
    feed = changefeed_in(tmp_path, log, hosted=hosted)
    waits, put, draft = list[float | None](), durable.put, LocalStorage.draft

    def full(path: str, *args: Any, **given: Any) -> None:
        if len(waits) < 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        put(path, *args, **given)

    def no_room(storage: LocalStorage, folder: str) -> Draft:
        if len(waits) < 3:
            raise DiskLow(f"no room for {folder}")
        return draft(storage, folder)

    monkeypatch.setattr(durable, "put", full)
    monkeypatch.setattr(LocalStorage, "draft", no_room)
    monkeypatch.setattr(feed._stop, "wait", lambda seconds=None: waits.append(seconds))
    feed.progress.save(Report(1, START, START + 5, 1, 1, TaskStats(-1), ()))
    assert len(waits) == 3
    assert feed.folder.checkpoint() == START + 5
