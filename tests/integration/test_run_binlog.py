"""`tidemill run --binlog`: recorded binlogs, from a Pump to the messages of a changefeed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.binlog.drained import history, meta_of, recorded, with_fillers
from tests.support.binlog.fake_pumps import PumpWorld, world
from tidemill.binlog.messages import fake
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader
from tidemill.demo.audit import Audit
from tidemill.demo.delivered import from_jsonl
from tidemill.process import children

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.thorough("tests/chaos/test_binlog_chaos.py has such a run; tests/binlog has what becomes of recorded binlogs")
def test_binlogs_are_delivered_as_any_rows_are(tmp_path: Path) -> None:
    jobs = history()
    binlogs = with_fillers([binlog for case in recorded() for binlog in case.binlogs], jobs)
    begin, end = binlogs[0].commit_ts - 100, binlogs[-1].commit_ts + 10
    out = tmp_path / "out.jsonl"
    config = tmp_path / "feed.toml"
    config.write_text("force-replicate = true\n")

    async def whole() -> tuple[int, str]:
        async with world(tmp_path, PumpWorld, meta_of(jobs, begin)) as w:
            await w.pump("p1", *binlogs, fake(end))
            argv = [
                *("-m", "tidemill.cli.main", "run", "--binlog", "--drainer-addr", "127.0.0.1:0", "--pd", w.playground.pd_address),
                *("--log", str(tmp_path / "log"), "--data-dir", str(tmp_path / "data"), "--log-retention", "900000h", "--tz", "UTC"),
                *("--sink-uri", f"messages://{out}?protocol=open-protocol", "--config", str(config), "--log-level", "warn"),
                *("--start-ts", str(begin), "--target-ts", str(end)),
            ]
            process = await asyncio.create_subprocess_exec(
                sys.executable, *argv, env=children.environment(), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
            )
            said, _ = await process.communicate()
            return process.returncode or 0, said.decode()

    code, said = asyncio.run(whole())
    assert code == 0, said
    audit = Audit()
    audit.take(from_jsonl(out))
    audit.finish()
    assert audit.problems == []
    reader = LogReader(tmp_path / "log")
    schemas = load_history(reader)
    rows: Counter[tuple[str, str]] = Counter()
    for partition in range(reader.partitions):
        for interval in reader.chain(partition, reader.start_ts, reader.resolved_ts()):
            for path in interval.parts:
                for row in reader.open_segment(path).read_all().to_pylist():
                    rows[schemas.snapshot(row["commit_ts"] - 1).by_physical[row["table_id"]].name] += 1
    told: Counter[tuple[str, str]] = Counter()
    for message in from_jsonl(out):
        told += _rows_in(message.key)
    split = Counter({("gold", "t_ncpk"): 1, ("gold", "t_uk"): 1})  # updates that change a unique key are a delete and an insert
    assert told == rows + split
    assert rows.total() > 300
    status = json.loads((tmp_path / "data/changefeeds/default/capture/status.json").read_text())
    assert status["binlog"]["PumpPos"] == {"p1": end}


def _rows_in(key: bytes | None) -> Counter[tuple[str, str]]:
    """The tables of the rows of a message's key: after 8 bytes of version, each event has its length and JSON."""
    found: Counter[tuple[str, str]] = Counter()
    data = (key or b"")[8:]
    while data:
        size = int.from_bytes(data[:8], "big")
        event = json.loads(data[8 : 8 + size])
        if event["t"] == 1:
            found[event["scm"], event["tbl"]] += 1
        data = data[8 + size :]
    return found
