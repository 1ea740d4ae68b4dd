"""The server's two processes: a log level reaches both, also those that are started later; crashes are told from errors."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tidemill.delivery.machine.failures import JobLost
from tidemill.errors import EXIT_RETRY
from tidemill.process.lifeline import take_level
from tidemill.process.supervisor import ChildProcess, End, Supervisor
from tidemill.server.processes import Commands, Lasting, OwnProcesses


@dataclass
class FakeChild:
    pid: int
    told: list[bytes] = field(default_factory=list)

    def tell(self, line: bytes) -> bool:
        self.told.append(line)
        return True


def test_a_level_is_told_once_to_each_process_that_there_is() -> None:
    processes = OwnProcesses(Commands("pd", "log", Path("data")), lambda: 0, term=1)
    running: Any = processes._running
    children = {name: ChildProcess(name, []) for name in ("capture", "delivery")}
    for name, child in children.items():
        running[name] = Supervisor([child], until=""), None
    first, second = FakeChild(1), FakeChild(2)
    children["capture"].process = first  # type: ignore[assignment]
    processes.set_log_level("debug")
    for _ in range(2):
        processes._tell_level(children["capture"])
    assert first.told == [b'{"do":"log","level":"debug"}\n']
    children["capture"].process = second  # type: ignore[assignment]
    processes._tell_level(children["capture"])
    processes._tell_level(children["delivery"])  # it is not there
    processes.set_log_level("warn")
    assert [len(first.told), len(second.told)] == [1, 2]


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
