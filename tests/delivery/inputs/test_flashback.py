"""A changefeed delivers what lies before a FLASHBACK CLUSTER of its log, and then ends at it by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.changelog.flashback import JOB, flash_back
from tests.support.changelog.sqllogs import SqlLog
from tests.support.delivery.deliveries import clock_of
from tidemill.changelog.reader import LogReader
from tidemill.delivery.position import Position
from tidemill.errors import SchemaError


def ends(log: str, begin: int, *, by_table: bool = False, target_ts: int = 0) -> list[int]:
    """Where batches end, up to the target."""
    clock, at, found = clock_of(log, Position(begin), by_table=by_table, target_ts=target_ts), Position(begin), []
    while at.ts < target_ts:
        at = clock.next(at)
        found.append(at.ts)
    return found


def assert_stops(log: str, at: int, *, by_table: bool = False) -> None:
    with pytest.raises(SchemaError, match=rf"FLASHBACK CLUSTER \(DDL job {JOB}\)"):
        clock_of(log, Position(at), by_table=by_table).next(Position(at))


@pytest.mark.parametrize("by_table", [False, True])
def test_all_before_it_is_delivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_table: bool) -> None:
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY)")
    at = sql.run("INSERT INTO t VALUES (1)", "CREATE TABLE o (id INT)", "INSERT INTO t VALUES (2)")
    sql.run("INSERT INTO t VALUES (3)")
    flash_back(monkeypatch, at)
    log = sql.write(tmp_path / "log", partitions=2)
    clock, end = clock_of(log, Position(sql.start_ts), by_table=by_table), Position(sql.start_ts)
    while end.ts < at - 1:
        end = clock.next(end)
    assert end == Position(at - 1)
    with pytest.raises(SchemaError, match=rf"FLASHBACK CLUSTER \(DDL job {JOB}\)"):
        clock.next(end)
    assert_stops(log, at - 1, by_table=by_table)
    assert ends(log, sql.start_ts, by_table=by_table, target_ts=at - 5)[-1] == at - 5


def test_a_log_that_ends_just_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The capture has stopped there: rows do not come up to the job, its schema stream does."""
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY)")
    at = sql.run("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (3)")
    flash_back(monkeypatch, at)
    log = sql.write(tmp_path / "log")
    monkeypatch.setattr(LogReader, "resolved_ts_if_above", lambda self, ts: at - 3)
    assert ends(log, sql.start_ts, target_ts=at - 3)[-1] == at - 3
    assert_stops(log, at - 3)
