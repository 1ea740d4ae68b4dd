"""Traces of whole processes: a Drainer that writes files, and a capture of binlogs into a change log."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.binlog.binlogs import until
from tests.support.binlog.fake_pumps import BEGIN, PumpWorld, inserted, world
from tests.support.traces.collector import Collector, attributes, collector
from tidemill.binlog.messages import fake
from tidemill.process import children

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DRAINER = ("drainer", "-addr", "127.0.0.1:0", "-pd-urls", "http://{pd}", "-data-dir", "{folder}/data", "-dest-db-type", "file")
CAPTURE = ("capture", "--binlog", "--drainer-addr", "127.0.0.1:0", "--pd", "{pd}", "--log", "{folder}/log", "--log-retention", "900000h")
BEGIN_AT = {"drainer": ("-initial-commit-ts", str(BEGIN)), "capture": ("--start-ts", str(BEGIN))}


def drains(there: Collector) -> list[Any]:
    return [one for one in there.spans if one.name == "drain"]


def binlogs(there: Collector) -> int:
    return sum(int(attributes(one)["tidemill.binlogs"]) for one in drains(there))


async def deliver(folder: Path, command: tuple[str, ...], there: Collector) -> None:
    """Let a program deliver what two Pumps have, then one transaction more, and end in order."""
    async with world(folder, PumpWorld) as w:
        one = await w.pump("p1", inserted(BEGIN + 10, 1), inserted(BEGIN + 30, 3), fake(BEGIN + 50))
        await w.pump("p2", inserted(BEGIN + 20, 2), fake(BEGIN + 90))
        words = [word.format(pd=w.playground.pd_address, folder=folder) for word in (*command, *BEGIN_AT[command[0]])]
        process = await asyncio.create_subprocess_exec(
            *children.python("tidemill.cli.main", *words),
            env=children.environment({"OTEL_EXPORTER_OTLP_ENDPOINT": there.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "50"}),
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            await until(lambda: binlogs(there) == 3)
            one.give(inserted(BEGIN + 70, 7), fake(BEGIN + 80))
            await until(lambda: binlogs(there) == 4)
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


@pytest.mark.parametrize(("command", "destination"), [(DRAINER, "file"), (CAPTURE, "log")], ids=["drainer", "capture"])
def test_what_is_delivered_has_a_trace(tmp_path: Path, command: tuple[str, ...], destination: str) -> None:
    with collector() as there:
        asyncio.run(deliver(tmp_path, command, there))
    assert {one["tidemill.part"] for one in there.resources} == {command[0]}
    for root in drains(there):
        below = [one for one in there.spans if one.parent_span_id == root.span_id]
        names = [one.name for one in below]
        assert [name for name in names if name not in ("pull", "flush", "save")][-2:] == ["read", "write"]
        assert attributes(root)["tidemill.destination"] == destination
        assert all(root.start_time_unix_nano <= one.start_time_unix_nano <= one.end_time_unix_nano for one in below)
        assert {one.trace_id for one in below} == {root.trace_id}
    last = attributes(drains(there)[-1])
    assert (last["tidemill.from_ts"], last["tidemill.to_ts"], last["tidemill.ddls"]) == (BEGIN + 70, BEGIN + 70, 0)
    pulls = [attributes(one) for one in there.spans if one.name == "pull"]
    assert {one["tidemill.pump"] for one in pulls} == {"p1", "p2"}
    assert sum(one["tidemill.bytes"] for one in pulls) == sum(attributes(one)["tidemill.bytes"] for one in drains(there))
    assert {"merge", "save"} <= {one.name for one in there.spans}
