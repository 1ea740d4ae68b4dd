"""Random lives of changefeeds, by the code that moves their states: every transition of the table is taken, and none beside it.

Lives of `tidemill run` are made of what the process that delivers does (`progress.py`), and what the supervisor's rule says of
its ends. Those of `tidemill server` are in `tests/server/test_life.py`.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tidemill.changefeed import progress as progress_module
from tidemill.changefeed import restart_rule as keeper_module
from tidemill.changefeed.changefeed import Changefeed
from tidemill.changefeed.feed_folder import FeedFolder, FeedIdentity
from tidemill.changefeed.restart_backoff import Patience
from tidemill.changefeed.restart_rule import RestartRule
from tidemill.changefeed.runner import changefeed_of
from tidemill.changefeed.runner_options import Options
from tidemill.changefeed.states import TRANSITIONS, Event, State, after
from tidemill.config.file import parse_config
from tidemill.delivery.machine.actions import Report
from tidemill.delivery.work_item import TaskStats
from tidemill.errors import EXIT_FATAL, EXIT_RETRY, LogRefused, LogUnavailable, MessageTooLarge, SinkUnavailable
from tidemill.process.supervisor import End, Then

OF_RUNS = (State.NORMAL, State.WARNING, State.FAILED, State.FINISHED)
IDENTITY = FeedIdentity("f", "c", "log", "blackhole://", {}, "UTC", 1)
ENDS = [
    (EXIT_RETRY, (SinkUnavailable.code, "away")),
    (EXIT_RETRY, (LogUnavailable.code, "away")),
    (EXIT_FATAL, (MessageTooLarge.code, "17 bytes")),
    (-9, None),
]


def changefeed_in(folder: Path, **more: Any) -> Changefeed:
    options = Options(
        "f", str(folder / "log"), folder, "blackhole://", parse_config(""), None, None, target_ts=9, master=None, trigger_ms=0, retry_s=0
    )
    return changefeed_of(replace(options, **more), threading.Event())


class World:
    """A changefeed over many starts."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.folder, self.random = folder, random
        self.now, self.ts, self.pid = 0.0, 10, 0
        self.keeper = RestartRule(
            FeedFolder(folder, "f"), Patience(30.0), new=random.random() < 0.3, clock=lambda: self.now, chance=random.random
        )

    def supervised(self) -> None:
        """The changefeed's process, as long as the supervisor starts it."""
        for _ in range(6):
            self.keeper.begins()
            feed = changefeed_in(self.folder, supervised=True, retries=self.keeper.retries)
            self.pid = self.random.choice((self.pid, self.pid + 1))
            feed.progress.status.pid = self.pid
            status, error = self.random.choice(ENDS)
            if self.random.random() < 0.8 and self.delivers(feed):
                status, error = 0, None
            self.now += self.random.choice((0.0, 20.0))
            answer = self.keeper.ended(End(status, self.pid, error))
            if answer.then is Then.AGAIN:
                if self.random.random() < 0.2:
                    self.keeper.resumed()
                continue
            if answer.then is not Then.REST or not self.keeper.resumed():
                return

    def alone(self) -> None:
        """The process without a supervisor."""
        feed = changefeed_in(self.folder)
        if not self.delivers(feed) and self.random.random() < 0.8:
            feed.progress.end(Event.REFUSED, MessageTooLarge("17 bytes"))
        feed.progress.close()

    def delivers(self, feed: Changefeed) -> bool:
        """Whether the target is reached."""
        random = self.random
        feed.progress.begin(IDENTITY, self.ts, by_table=False, retries=feed._options.retries)
        feed.progress.begun()
        for _ in range(random.randrange(3)):
            if random.random() < 0.5:
                feed.progress.failed(SinkUnavailable("away"))
            else:
                self.ts += 1
                feed.progress.save(Report(0, self.ts - 1, self.ts, 1, 1, TaskStats(-1), ()))
        if random.random() < 0.3:
            feed.progress.end(Event.TARGET_REACHED)
            feed.progress.failed(LogUnavailable("a look that took its time"))
            return True
        return False


def test_every_transition_is_taken_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: set[tuple[State, Event]] = set()

    def recorded(state: State, event: Event) -> State:
        taken.add((state, event))
        return after(state, event)

    monkeypatch.setattr(keeper_module, "after", recorded)
    monkeypatch.setattr(progress_module, "after", recorded)
    monkeypatch.setattr(FeedFolder, "save_checkpoint", lambda *arguments: None)
    for seed in range(60):
        random = Random(seed)
        world = World(tmp_path / str(seed), random)
        world.folder.mkdir()
        for _ in range(4):
            random.choice((world.supervised, world.alone))()
            if random.random() < 0.5:
                world.keeper = RestartRule(FeedFolder(world.folder, "f"), Patience(30.0), clock=lambda w=world: w.now, chance=random.random)
    of_servers = (Event.PUT_OFF, Event.RETRIED, Event.EXPIRED, Event.PAUSED, Event.REMOVED)
    assert taken == {(state, event) for state, event in TRANSITIONS if state in OF_RUNS and event not in of_servers}


def test_a_target_that_is_reached_stays_so_if_that_cannot_be_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: Any) -> None:
        raise LogRefused("no permission")

    def deliver(feed: Changefeed, stack: object) -> None:
        feed.progress.end(Event.TARGET_REACHED)

    monkeypatch.setattr(FeedFolder, "save_state", refused)
    monkeypatch.setattr(Changefeed, "_deliver", deliver)
    with pytest.raises(LogRefused):
        changefeed_in(tmp_path).run()
    status = FeedFolder(tmp_path, "f").status()
    assert status is not None
    assert (status["state"], status["error"]) == (State.FINISHED, None)


def test_a_look_that_takes_its_time_says_nothing_of_a_changefeed_that_is_over(tmp_path: Path) -> None:
    feed = changefeed_in(tmp_path)
    feed.progress.end(Event.TARGET_REACHED)
    feed.progress.failed(LogUnavailable("time-out"))
    assert feed.progress.status.state == State.FINISHED
