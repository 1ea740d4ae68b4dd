"""The capture of a server, a real process: it takes other tables while it runs, and is started once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.capture.captures import until
from tidemill.capture.config import CaptureConfig
from tidemill.capture.rule_changes import Numbered, rules_in
from tidemill.changelog.log_format import CaptureRules
from tidemill.changelog.reader import LogReader
from tidemill.playground.server import PlaygroundThread
from tidemill.server.host.messages import HostOrder
from tidemill.server.processes import OwnProcesses
from tidemill.server.standing_by import Standby


@pytest.mark.slow
def test_it_takes_other_tables_without_a_start(tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    heard: list[Numbered] = []

    def hears(line: bytes) -> None:
        found = rules_in(line)
        assert found is not None
        heard.append(found)

    async def main(pd: str) -> None:
        capture = CaptureConfig((pd,), log, data_dir=tmp_path / "capture", log_file=tmp_path / "log.txt")
        processes = OwnProcesses(Standby(capture, HostOrder(log, tmp_path)), lambda: 0, 3)
        processes.start_capture(None, lambda: 0, CaptureRules(0, ("a.*",)), hears)
        try:
            for number, wanted in enumerate((("a.*", "b.*"), ("b.*",), ("*.*",)), 1):
                await until(lambda number=number: len(heard) == number)
                processes.set_rules(Numbered(number, CaptureRules(0, wanted)))
            await until(lambda: len(heard) == 4)
            assert [one.number for one in heard] == [0, 1, 2, 3]
            assert [one["restarts"] for one in processes.seen()] == [0]
        finally:
            await processes.stop()

    with PlaygroundThread(3, resolved_interval=0.1) as playground:
        asyncio.run(main(playground.pd_address))
    entries = LogReader(log).identity.capture_rules
    assert [entry.rules for entry in entries] == [("a.*",), ("a.*", "b.*"), ("b.*",), ("*.*",)]
    assert [entry.from_ts for entry in entries] == [one.rules.from_ts for one in heard]
    assert (tmp_path / "log.txt").read_text().count("capturing ") == 1
