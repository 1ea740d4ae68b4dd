"""The log waits for a stream: as long as it runs, from run to run of one checkpoint, and no longer than was asked for. Without Spark."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.changelog.sqllogs import SqlLog
from tests.support.spark.frames import Stream, needs_streams
from tidemill.changelog import feeds
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import LocalStorage
from tidemill.errors import LogRefused
from tidemill.spark.source.ddl import DdlSource


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(feeds, "TELL_EVERY_S", 0.0)
    sql = SqlLog("CREATE TABLE t (id INT PRIMARY KEY)")
    sql.run("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)", "ALTER TABLE t COMMENT = 'x'", "INSERT INTO t VALUES (3)")
    return sql.write(tmp_path / "log")


def held(log: str) -> dict[str, int]:
    return {name: ts for name, ts in LogReader(log).feeds().items() if name.startswith(feeds.QUERY)}


def test_what_a_stream_has_still_to_read_is_kept(log: str) -> None:
    stream = Stream(log, table="app.t", maxRowsPerTrigger="1")
    begin = stream.at
    assert held(log) == {}, "it has asked for nothing yet"
    stream.batch()
    ((name, ts),) = held(log).items()
    assert ts == begin["ts"]
    stream.reader.commit(stream.at)
    assert held(log) == {name: stream.at["ts"]}
    again = Stream(log, stream.at, table="app.t", maxRowsPerTrigger="1")
    again.rows(begin, stream.at)  # as Spark does where it does not know that the batch was the last one
    again.batch()
    assert held(log) == {name: stream.at["ts"]}, "a restart is the same stream"
    Stream(log, table="app.t").batch()
    assert len(held(log)) == 2, "another checkpoint is another one"


def test_its_last_word_says_where_it_ends(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "TELL_EVERY_S", 3600.0)
    stream = Stream(log, table="app.t", available_now=True)
    begin = stream.at["ts"]
    stream.batches()
    stream.reader.commit(stream.at)
    assert list(held(log).values()) == [begin]
    stream.reader.stop()
    assert list(held(log).values()) == [stream.at["ts"]]


def test_one_that_says_nothing_is_over_after_the_time_that_it_asked_for(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, now = LocalStorage(log), time.time()
    stream = Stream(log, table="app.t", logLease="3h")
    stream.batch()
    Stream(log, table="app.t").batch()
    (short, long) = sorted(held(log), key=lambda name: (Path(log) / "feeds" / f"{name}.json").read_text().count("10800"), reverse=True)
    feeds.forget_silent(storage, now + 3 * 3600 - 60)
    assert held(log).keys() == {short, long}
    feeds.forget_silent(storage, now + 3 * 3600 + 60)
    assert held(log).keys() == {long}
    assert not list(Path(log, "feeds").glob(f"*{short}*")), "nor its lock"
    stream.reader.commit(stream.at)
    assert held(log).keys() == {long}
    monkeypatch.setattr(feeds, "REGISTER_EVERY_S", 0.0)
    stream.reader.commit(stream.at)
    assert held(log) == {short: stream.at["ts"], long: held(log)[long]}, "one that was only away is there again"
    feeds.forget_silent(storage, now + 48 * 3600 + 60)
    assert held(log) == {}


def test_nobody_waits_for_one_that_does_not_ask_for_it(log: str) -> None:
    stream = Stream(log, table="app.t", logLease="0s")
    stream.batches()
    stream.reader.commit(stream.at)
    stream.reader.stop()
    assert held(log) == {}
    assert "query" not in stream.at


def test_a_log_that_can_only_be_read_is_read(log: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def refused(*_: object, **__: object) -> None:
        raise LogRefused("no rights")

    monkeypatch.setattr(feeds, "register", refused)
    assert len(Stream(log, table="app.t", maxRowsPerTrigger="1").batches()) == 3
    assert "the log does not wait for query." in caplog.text


def test_an_offset_of_an_earlier_version_gets_a_name(log: str) -> None:
    stream = Stream(log, table="app.t", maxRowsPerTrigger="1")
    del stream.at["query"]
    stream.batches()
    assert list(held(log)) == [f"query.{stream.at['query']}"]


@needs_streams
def test_ddls_are_waited_for_too(log: str) -> None:
    source = DdlSource({"log": log})
    stream = source.streamReader(source.schema())
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert held(log) == {f"query.{start['query']}": start["ts"]}
    stream.commit(end)
    assert held(log) == {f"query.{start['query']}": end["ts"]}
