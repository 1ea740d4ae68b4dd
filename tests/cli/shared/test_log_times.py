"""Times of commands that read a log."""

from pathlib import Path

import pytest

from tests.support.changelog.logs import golden_log
from tidemill.changelog.reader import LogReader
from tidemill.cli.shared.log_times import ts_in
from tidemill.errors import ConfigError


def test_now_is_the_end_of_the_log(tmp_path: Path) -> None:
    log = str(golden_log(tmp_path / "log", partitions=1, segments=1))
    end = LogReader(log).resolved_ts()
    assert ts_in(log, None) is None
    assert ts_in(log, "now") == end
    assert ts_in(log, "-2h") == end - (7_200_000 << 18)
    assert ts_in("no such log", str(end)) == end
    with pytest.raises(ConfigError, match="not understood"):
        ts_in("no such log", "yesterday")
