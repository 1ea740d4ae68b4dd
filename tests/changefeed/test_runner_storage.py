"""The driver as a process that writes files of tables: killed in the middle it goes on, and readers see each row once."""

from __future__ import annotations

import re
import signal
from collections import Counter
from datetime import UTC
from pathlib import Path

import pytest

from tests.support.changelog.logs import golden_log
from tests.support.delivery.runner_process import await_checkpoint, options, run, started, state
from tidemill.changefeed.replay import replay
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

PARAMETERS = "protocol=canal-json&enable-tidb-extension=true&date-separator=none"
_STAMP = re.compile(rb'"ts":[0-9]+')  # when it was written


def lines(root: Path) -> dict[str, Counter[bytes]]:
    """The rows of each folder that readers see."""
    found: dict[str, Counter[bytes]] = {}
    for index in root.glob("**/meta/CDC.index"):
        folder = index.parent.parent
        newest = index.read_text().strip()
        for file in folder.glob("CDC*.json"):
            assert file.name <= newest, f"{file} is not in the index"
            rows = Counter(_STAMP.sub(b"", line) for line in file.read_bytes().splitlines())
            found.setdefault(folder.relative_to(root).as_posix(), Counter()).update(rows)
    return found


def schema_files(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.glob("**/meta/schema_*.json")}


@pytest.mark.thorough("test_runner.py kills the process, tests/simulate drivers of this sink")
def test_killed_in_the_middle(tmp_path: Path) -> None:
    log = golden_log(tmp_path / "log", partitions=2, segments=5)
    history = load_history(LogReader(log))
    stops = history.barriers(history.start_ts, history.resolved_ts)
    sink = f"file://{tmp_path}/out?{PARAMETERS}"
    target = stops[12]
    with started(options(tmp_path, sink=sink)) as first:
        await_checkpoint(tmp_path, stops[4], first)
        first.send_signal(signal.SIGKILL)
    code, said = run(options(tmp_path, target_ts=target, sink=sink))
    assert code == 0, said
    assert state(tmp_path, "checkpoint.json")["checkpoint_ts"] == target
    config = parse_config("")
    replay(str(log), Settings("plain", config.sink_uri(f"file://{tmp_path}/plain?{PARAMETERS}"), config, UTC), target_ts=target)
    assert lines(tmp_path / "out") == lines(tmp_path / "plain")
    assert schema_files(tmp_path / "out") == schema_files(tmp_path / "plain")
    assert (tmp_path / "out" / "metadata").read_bytes() == (tmp_path / "plain" / "metadata").read_bytes()
    assert sum(sum(rows.values()) for rows in lines(tmp_path / "out").values()) > 50
