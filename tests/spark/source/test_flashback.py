"""FLASHBACK CLUSTER in a log changes rows without a change: what lies before it is read, and then a query ends at it by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.changelog.flashback import JOB, flash_back
from tests.support.changelog.sqllogs import SqlLog
from tests.support.spark.frames import Stream, needs_streams, read
from tidemill.changelog.reader import LogReader
from tidemill.errors import SchemaError
from tidemill.spark.source.ddl import DdlSource


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, int]:
    """A log, and the ts of the job in it."""
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY)")
    sql.run("INSERT INTO t VALUES (1)")
    at = sql.run("INSERT INTO t VALUES (2)", "CREATE TABLE o (id INT)")
    sql.run("INSERT INTO t VALUES (3)")
    flash_back(monkeypatch, at)
    return sql.write(tmp_path / "log"), at


def test_a_stream_reads_what_lies_before_it(made: tuple[str, int]) -> None:
    log, at = made
    stream = Stream(log, table="app.t")
    assert [row["id"] for row in stream.batch() or ()] == [1, 2]
    assert stream.at["ts"] == at - 1
    for started in (stream, Stream(log, stream.at, table="app.t")):
        with pytest.raises(SchemaError, match=rf"FLASHBACK CLUSTER \(DDL job {JOB}\) at {at}") as ended:
            started.batch()
        assert f"endingTs={at - 1}" in ended.value.hint
        assert "--snapshot" in ended.value.hint


def test_a_stream_without_rows_before_it_ends_too(made: tuple[str, int]) -> None:
    with pytest.raises(SchemaError, match=str(JOB)):
        Stream(made[0], tables="app.none").batch()


def test_a_batch_reads_up_to_it_only_where_that_is_asked_for(made: tuple[str, int]) -> None:
    log, at = made
    with pytest.raises(SchemaError, match=f"DDL job {JOB}") as refused:
        read(log, table="app.t")
    assert f"endingTs={at - 1}" in refused.value.hint
    assert [row["id"] for row in read(log, table="app.t", endingTs=str(at - 1))] == [1, 2]
    with pytest.raises(SchemaError, match=f"DDL job {JOB}"):
        read(log, table="app.t", startingTs=str(at + 1))


@needs_streams
def test_ddls_before_it(made: tuple[str, int]) -> None:
    log, at = made
    source = DdlSource({"log": log, "table": "app.o"})
    stream = source.streamReader(source.schema())
    end = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    assert end["ts"] == at - 1
    assert sum(batch.num_rows for p in stream.partitions({"ts": 0}, end) for batch in stream.read(p)) == 1
    with pytest.raises(SchemaError, match=str(JOB)):
        stream.latestOffset(end, stream.getDefaultReadLimit())


def test_a_log_that_ends_before_it(made: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The capture has stopped there: rows do not come up to the job, its schema stream does."""
    log, at = made
    monkeypatch.setattr(LogReader, "resolved_ts", lambda self: at - 3)
    monkeypatch.setattr(LogReader, "resolved_ts_if_above", lambda self, ts: at - 3)
    assert [row["id"] for row in read(log, table="app.t")] == [1, 2]
    stream = Stream(log, table="app.t")
    assert [row["id"] for row in stream.batch() or ()] == [1, 2]
    with pytest.raises(SchemaError, match=f"DDL job {JOB}"):
        stream.batch()
    assert Stream(log, stream.at, table="app.t", endingTs=str(at - 3)).batch() is None
