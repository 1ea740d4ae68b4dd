"""One look at the log for all changefeeds: what a look shows, whom it wakes, and a log whose storage is away."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.changelog.conftest import META
from tests.support.changelog.logs import START, batch_of, put
from tidemill.changelog.history import load_history
from tidemill.changelog.log_format import CaptureRules, LogIdentity
from tidemill.changelog.storage.open import LocalStorage
from tidemill.changelog.writer import LogWriter
from tidemill.delivery.clock import Clock
from tidemill.delivery.position import Position
from tidemill.errors import LogUnavailable
from tidemill.server.host import shared_log as module
from tidemill.server.host.feed import HostLog
from tidemill.server.host.shared_log import SharedLog, Waiter


@pytest.fixture
def writer(tmp_path: Path) -> LogWriter:
    return LogWriter.create(LocalStorage(str(tmp_path / "log"), sync=False), LogIdentity("1", START, 2), snapshot=META)


def move(writer: LogWriter, ts: int) -> None:
    for p in writer.partitions:
        writer.partition(p).set_head(ts)
    writer.schema.set_head(ts)


def test_heads_are_those_of_the_last_look(writer: LogWriter) -> None:
    move(writer, START + 10)
    log = SharedLog(writer.storage.location)
    move(writer, START + 20)
    assert (log.heads(), log.resolved_ts(), log.schema_head()) == ([START + 10] * 2, START + 10, START + 10)
    log.look()
    assert (log.heads(), log.resolved_ts_if_above(START), log.schema_head()) == ([START + 20] * 2, START + 20, START + 20)


def test_rows_up_to_the_last_look_are_found(writer: LogWriter) -> None:
    writer.partition(0).publish(START + 10, [batch_of([put(1, 1, START + 5)])])
    move(writer, START + 10)
    log = SharedLog(writer.storage.location)
    assert len(log.chain(0, START, START + 10)) == 1
    assert log.chain(1, START, START + 10) == []
    assert log.read_schema(START, START + 10).num_rows == 0


def test_a_changefeed_that_begins_sees_the_rules_of_a_backfill(writer: LogWriter) -> None:
    """They change below the heads: no head moves."""
    move(writer, START + 10)
    log = SharedLog(writer.storage.location)
    rules = CaptureRules(START + 5, ("a.*", "b.*"), False)
    writer.change_identity(lambda identity: identity.with_rules(rules))
    log.look()
    assert log.identity.capture_rules == ()
    assert HostLog(lambda: log, threading.Event()).open().identity.capture_rules == (rules,)


def test_who_waits_is_woken_when_the_log_is_there(writer: LogWriter) -> None:
    move(writer, START + 10)
    log = SharedLog(writer.storage.location)
    waiter, woken = Waiter(log), threading.Event()
    log.waits(waiter)

    def wait() -> None:
        waiter.wait(START + 20, 600.0)
        woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    move(writer, START + 30)
    while not woken.wait(0.01):
        log.look()
    thread.join()
    assert not waiter.is_due(START + 19, 0.0)
    assert waiter.is_due(START + 20, 0.0)


class Interrupted(LocalStorage):
    """Calls `meanwhile` once, when the head of a folder is read."""

    meanwhile: Callable[[], None] | None = None

    def read(self, name: str) -> bytes | None:
        if self.meanwhile is not None and name == "rows/3/head.json":
            call, self.meanwhile = self.meanwhile, None
            call()
        return super().read(name)


def test_a_changefeed_that_asks_during_a_look_at_a_log_that_grew_sees_it_as_it_was(writer: LogWriter) -> None:
    move(writer, START + 10)
    place = Interrupted(writer.storage.location, sync=False)
    log = SharedLog(place)  # type: ignore[arg-type]  # a storage will do
    clock = Clock(log, load_history(log, from_ts=START), Position(START), trigger_s=0.0, by_table=True)
    writer.set_identity(writer.identity.grown(START + 10, 4))
    writer.close()
    with LogWriter.open(LocalStorage(writer.storage.location, sync=False)) as grown:
        move(grown, START + 20)
    seen: list[Position] = []

    place.meanwhile = lambda: seen.append(clock.next(Position(START)))
    log.look()
    assert seen == [Position(START + 10)]
    assert clock.next(seen[0]) == Position(START + 20)


def test_storage_that_is_away_is_told_to_whoever_asks_and_looked_for(writer: LogWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    move(writer, START + 10)
    log = SharedLog(writer.storage.location)
    with monkeypatch.context() as patch:

        def away(*_: object) -> int:
            raise LogUnavailable("the disk is away")

        patch.setattr("tidemill.changelog.reader.read_head", away)
        log.look()
        assert log.poll_s == module.AWAY_POLL_S
        with pytest.raises(LogUnavailable, match="the disk is away"):
            log.resolved_ts()
    log.look()
    assert (log.resolved_ts(), log.poll_s) == (START + 10, module.LOCAL_POLL_S)
