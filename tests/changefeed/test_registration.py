"""A changefeed or a view registers while retention moves the log's start: it is refused, and does not begin later than it was told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelog.logs import START
from tests.support.delivery.feeds import World
from tidemill.changefeed.changefeed import Changefeed
from tidemill.changefeed.runner import changefeed_of
from tidemill.changefeed.runner_options import Options
from tidemill.changelog.options import LogOptions
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import LocalStorage
from tidemill.changelog.writer import LogWriter
from tidemill.config.file import parse_config
from tidemill.errors import StartTsOutOfLog
from tidemill.server.changefeeds import log_claims
from tidemill.views import view
from tidemill.views.plan import Plan, Scan


@pytest.fixture
def log(tmp_path: Path) -> str:
    return World.make(transactions=40).log(tmp_path / "log", partitions=2, segments=10)


def pass_by(log: str) -> None:
    """Retention moves the start to the log's end."""
    with LogWriter.open(LocalStorage(log, sync=False), options=LogOptions(retention_ms=0, low_water_bytes=0)) as writer:
        assert writer.maintain(writer.resolved_ts).start_ts > START


def passed_after(log: str, check: Callable[..., Any]) -> Callable[..., Any]:
    """A check that is passed, and out of date when it returns."""

    def checked(*args: Any, **more: Any) -> Any:
        found = check(*args, **more)
        pass_by(log)
        return found

    return checked


def test_the_driver_of_a_changefeed(log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Changefeed, "_check_start", passed_after(log, Changefeed._check_start))
    options = Options("new", log, tmp_path / "data", f"messages://{tmp_path}/out?protocol=open-protocol", parse_config(""))
    with pytest.raises(StartTsOutOfLog, match="changefeed new needs changes from"):
        changefeed_of(options, threading.Event()).run()
    assert LogReader(log).feeds() == {}


def test_a_server_s_changefeed_that_is_created_or_resumed(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_claims, "saved_begin", passed_after(log, log_claims.saved_begin))
    with pytest.raises(StartTsOutOfLog, match="changefeed new needs changes from"):
        log_claims.register(log, "new", START)
    assert LogReader(log).feeds() == {}


SCAN = Scan(0, (), None)


def test_a_view(log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "planned", passed_after(log, lambda *_: view.Planned(Plan((), SCAN), view.Begin(START, False), (), "{}")))
    views = view.Views(tmp_path / "views")
    with pytest.raises(StartTsOutOfLog, match="needs changes from"):
        view.create(views, "totals", log, "SELECT 1", "memory")
    assert LogReader(log).feeds() == {}
    assert [*views.names()] == []
