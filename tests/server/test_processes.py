"""The server's two processes: they are loaded, told to begin, and told again when they are started again; a log level reaches both.
Crashes are told from errors."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tidemill.delivery.machine.failures import JobLost
from tidemill.errors import EXIT_RETRY
from tidemill.process import orders
from tidemill.process.lifeline import take_level
from tidemill.process.supervisor import End
from tidemill.server.host.messages import HostOrder
from tidemill.server.standing_by import LastingProcess, lasting


@dataclass
class FakeChild:
    pid: int
    told: list[bytes] = field(default_factory=list)

    def tell(self, line: bytes) -> bool:
        self.told.append(line)
        return True


WAITING, WORKING = HostOrder("log", Path()), HostOrder("log", Path(), term=3)
WARM, BEGIN = orders.warm(WAITING), orders.begin(WORKING)
DEBUG = b'{"do":"log","level":"debug"}\n'
NEVER = lasting("the capture")


def made(monkeypatch: pytest.MonkeyPatch) -> LastingProcess:
    """One whose supervisor starts nothing."""
    monkeypatch.setattr(LastingProcess, "start", lambda self: None)
    return LastingProcess("capture", "module", WAITING, writes=False)


def starts(process: LastingProcess, pid: int) -> FakeChild:
    """A process is there, as the supervisor starts it."""
    found = FakeChild(pid)
    child: Any = found
    process.child.process = child
    child.tell(process.child.order())
    return found


def test_a_process_that_works_is_told_so_whenever_it_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    process = made(monkeypatch)
    process.begin(WORKING, NEVER, lambda line: None)
    assert starts(process, 1).told == [BEGIN]
    assert starts(process, 2).told == [BEGIN]


def test_a_process_that_stands_by_loads_and_then_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    process = made(monkeypatch)
    assert starts(process, 1).told == [WARM]
    second = starts(process, 2)
    process.begin(WORKING, NEVER, lambda line: None)
    assert second.told == [WARM, BEGIN]
    assert process.child.rule is NEVER


def test_one_that_could_not_be_loaded_begins_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    process = made(monkeypatch)
    process.begin(WORKING, NEVER, lambda line: None)
    assert process.child.wake.is_set()
    assert starts(process, 1).told == [BEGIN]


def test_a_level_is_told_to_a_process_that_works_and_to_those_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    process = made(monkeypatch)
    first = starts(process, 1)
    process.begin(WORKING, NEVER, lambda line: None)
    process.set_level("debug")
    assert first.told == [WARM, BEGIN, DEBUG]
    assert starts(process, 2).told == [orders.begin(replace(WORKING, log_level="debug"))]


def test_a_supervised_process_takes_the_level(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("tidemill")
    before = logger.level
    try:
        take_level(b'{"do":"log","level":"debug"}')
        assert logger.level == logging.DEBUG
        for line in (b"nonsense", b"[]", b"{}", b'{"do":"log"}', b'{"do":"log","level":"loud"}', b'{"do":"other"}'):
            take_level(line)
        assert logger.level == logging.DEBUG
    finally:
        logger.setLevel(before)


@pytest.mark.parametrize(
    ("end", "crashed"),
    [
        (End(-11, 1), True),
        (End(1, 1, None, "ValueError: x"), True),
        (End(EXIT_RETRY, 1, (JobLost.code, "Spark is gone")), True),
        (End(EXIT_RETRY, 1, ("TM:ErrSparkUnavailable", "no master")), False),
    ],
)
def test_a_crash_is_told_from_an_error(end: End, crashed: bool) -> None:
    found: list[bool] = []
    lasting("the delivery host", lost=lambda why, crashed: found.append(crashed)).ended(end)
    assert found == [crashed]
