"""Where a batch ends whose log partitions go by themselves."""

from __future__ import annotations

from pathlib import Path

from tests.support.delivery.feeds import World
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader
from tidemill.delivery.inputs.log_source import next_position
from tidemill.delivery.position import Position


def test_a_log_that_grows_after_its_heads_were_read(tmp_path: Path) -> None:
    """log.json tells of a new partition before there are rows in it, and may be read again at any time."""
    world = World.make(transactions=3)
    reader = LogReader(world.log(tmp_path / "log", partitions=3))
    history = load_history(reader)
    begin, heads = Position(reader.start_ts), reader.heads()
    whole = next_position(reader, history, begin, heads)
    assert begin.ts < whole.ts
    assert next_position(reader, history, begin, heads[:2]) == Position.of([whole.at(0), whole.at(1)])
