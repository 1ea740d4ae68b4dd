"""The server's two processes: they are loaded, told to begin, and told again when they are started again; a log level reaches both.
Crashes are told from errors."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from tidemill.delivery.machine.failures import JobLost
from tidemill.errors import EXIT_RETRY
from tidemill.process.lifeline import take_level
from tidemill.process.supervisor import End
from tidemill.server.standing_by import Lasting, LastingProcess


@dataclass
class FakeChild:
    pid: int
    told: list[bytes] = field(default_factory=list)

    def tell(self, line: bytes) -> bool:
        self.told.append(line)
        return True


BEGIN = b'{"do":"begin","arguments":["--term","1"]}\n'
DEBUG = b'{"do":"log","level":"debug"}\n'
NEVER = Lasting("capture", lambda: 0, lambda why, crashed: None)


def made() -> LastingProcess:
    return LastingProcess("capture", [], {}, heard=False)


def starts(process: LastingProcess, pid: int) -> FakeChild:
    """A process is there, as the supervisor tells it."""
    child: Any = FakeChild(pid)
    process.child.process = child
    process._supervisor.on_change()
    process._supervisor.on_change()
    found: FakeChild = child
    return found


def test_a_process_that_works_is_told_so_whenever_it_is_started() -> None:
    process = made()
    process.begin(("--term", "1"), NEVER, lambda line: None)
    assert starts(process, 1).told == [BEGIN]
    assert starts(process, 2).told == [BEGIN]


def test_a_process_that_stands_by_loads_and_then_begins() -> None:
    process = made()
    process.warm()
    first = starts(process, 1)
    assert first.told == [b'{"do":"warm"}\n']
    second = starts(process, 2)
    process.begin(("--term", "1"), NEVER, lambda line: None)
    assert second.told == [b'{"do":"warm"}\n', BEGIN]
    assert process.child.rule is NEVER


def test_one_that_could_not_be_loaded_begins_at_once() -> None:
    process = made()
    process.warm()
    process.begin(("--term", "1"), NEVER, lambda line: None)
    assert process.child.wake.is_set()
    assert starts(process, 1).told == [BEGIN]


def test_a_level_is_told_to_a_process_that_works_and_to_those_after_it() -> None:
    process = made()
    process.set_level("debug")
    first = starts(process, 1)
    assert first.told == []
    process.begin(("--term", "1"), NEVER, lambda line: None)
    with_level = b'{"do":"begin","arguments":["--term","1","--log-level","debug"]}\n'
    assert first.told == [with_level]
    process.set_level("debug")
    assert first.told == [with_level, DEBUG]
    assert starts(process, 2).told == [with_level]


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
    Lasting("delivery host", lambda: 0, lambda why, crashed: found.append(crashed)).ended(end)
    assert found == [crashed]
