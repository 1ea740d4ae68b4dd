"""A writer that is killed at any moment, repeatedly, loses nothing and repeats nothing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.changelog.log_writer_process import PARTITIONS, upstream
from tests.support.changelog.logs import START, Change, changes_of, order
from tidemill.changelog.reader import LogReader
from tidemill.changelog.verify import verify
from tidemill.changelog.writer import LogWriter

ROOT = Path(__file__).parent.parent.parent


def run_and_kill(log: Path, seed: int, steps: int) -> None:
    command = [sys.executable, "-m", "tests.support.changelog.log_writer_process", str(log), str(seed)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(steps):
            assert process.stdout.readline(), process.stderr.read()
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL


def rows_of(reader: LogReader, partition: int, to_ts: int) -> list[Change]:
    return [
        c
        for i in reader.chain(partition, START, to_ts)
        for c in sorted((c for p in i.parts for c in changes_of(reader.open_segment(p).read_all())), key=order)
    ]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kill_minus_nine_at_random_points(tmp_path: Path) -> None:
    log = tmp_path / "log"
    rng = random.Random(os.environ.get("TIDEMILL_SEED", "7"))
    reached = START
    for round_ in range(int(os.environ.get("TIDEMILL_KILLS", "4"))):
        run_and_kill(log, rng.randrange(1 << 30), rng.randint(1, 60))
        reader = LogReader(log)
        for p in range(PARTITIONS):
            head = reader.head(p)
            assert rows_of(reader, p, head) == upstream(p, START, head), f"round {round_}, partition {p}"
        assert reader.resolved_ts() >= reached
        reached = reader.resolved_ts()
        faults = [p for p in verify(log).problems if "schema history does not know" not in p.text]
        assert faults == []
    assert reached > START + 100
    LogWriter.open(log).close()
    assert not list(log.rglob("*.tmp"))
