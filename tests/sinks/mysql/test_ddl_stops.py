"""The five stops of the DDL barrier at which TiCDC's failover tests stop it, each with a process that dies there and one that freezes there
and goes on when another attempt has done everything, and more rows have come.

The DDL is a TRUNCATE: run once too often it would take rows that came later.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.delivery.database_sinks import CREATE, LATER, Sink, change, made_of
from tests.support.servers.mariadb import MariaDb
from tidemill.errors import TidemillError
from tidemill.records import KIND_INSERT
from tidemill.tidb.schema.codes import Action

pytestmark = pytest.mark.slow

TRUNCATE = "TRUNCATE TABLE `s`.`t`"
WAIT_S = 120.0


class Stop(enum.Enum):
    BEFORE_WRITE = "before the DDL is noted"
    IN_WRITE = "it is noted, and not sent"
    AFTER_WRITE = "it has run, and that is not noted"
    BEFORE_CHECKPOINT = "it is noted as run, the interval is not"
    AT_FENCE = "the attempt takes the changefeed's place downstream"


class Dies(BaseException):
    """The process is gone."""


@pytest.fixture
def db(mariadb: MariaDb) -> MariaDb:
    mariadb.clear()
    mariadb.run(*CREATE)
    return mariadb


@pytest.fixture
def sinks(db: MariaDb) -> Iterator[Any]:
    with made_of(db) as make:
        yield make


def stop_at(stop: Stop, sink: Sink, here: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    """Call `here` once, when this sink's driver has come to the stop."""
    passed = threading.Event()

    def once(reached: bool) -> None:
        if reached and not passed.is_set():
            passed.set()
            here()

    opening = sink.driver._open

    def opened(ctx: Any) -> Any:
        books = opening(ctx)
        begin, note, finish = books.begin, books.note_ddl, books.finish

        def noted(table_id: int, ts: int, *, finished: bool, count: int) -> None:
            once(stop is Stop.BEFORE_WRITE and not finished)
            once(stop is Stop.AFTER_WRITE and finished)
            note(table_id, ts, finished=finished, count=count)
            once(stop is Stop.IN_WRITE and not finished)

        def finished_at(*given: Any) -> None:
            once(stop is Stop.BEFORE_CHECKPOINT)
            finish(*given)

        def began(*given: Any) -> Any:
            once(stop is Stop.AT_FENCE)
            return begin(*given)

        patch.setattr(books, "note_ddl", noted, raising=True)
        patch.setattr(books, "finish", finished_at, raising=True)
        patch.setattr(books, "begin", began, raising=True)
        return books

    patch.setattr(sink.driver, "_open", opened)


def barrier(sink: Sink, epoch: int) -> None:
    """The batch whose last event is the DDL."""
    ctx = sink.begin(epoch)
    sink.deliver(change(KIND_INSERT, 1, 1, LATER + 1))
    sink.task.flush()
    sink.ddl(TRUNCATE, type=Action.TRUNCATE_TABLE)
    sink.driver.finish_batch(ctx)


def after(sink: Sink, epoch: int) -> None:
    """The next batch: a row that the DDL must not take."""
    sink.batch(epoch, change(KIND_INSERT, 2, 2, LATER + 11), from_ts=LATER + 10, to_ts=LATER + 20)


def held(db: MariaDb) -> tuple[list[Any], int, Any]:
    rows = [tuple(row) for row in db.rows("SELECT c1 FROM s.t ORDER BY 1")]
    (checkpoint,) = db.rows("SELECT checkpoint_ts FROM tidb_cdc.tidemill_feed_v1")[0]
    return rows, int(checkpoint), [tuple(row) for row in db.rows("SELECT ddl_ts, finished FROM tidb_cdc.ddl_ts_v1")]


RIGHT = ([(2,)], LATER + 20, [(str(LATER + 10), 1)])


@pytest.mark.parametrize("stop", Stop)
def test_a_process_dies_there(db: MariaDb, sinks: Any, stop: Stop, monkeypatch: pytest.MonkeyPatch) -> None:
    def die() -> None:
        raise Dies

    sink = sinks()
    stop_at(stop, sink, die, monkeypatch)
    with pytest.raises(Dies):
        barrier(sink, 1)
    sink.close()
    again = sinks()
    barrier(again, 2)
    after(again, 3)
    assert held(db) == RIGHT


@pytest.mark.parametrize("stop", Stop)
def test_a_process_freezes_there_and_goes_on_later(db: MariaDb, sinks: Any, stop: Stop, monkeypatch: pytest.MonkeyPatch) -> None:
    frozen, thawed = threading.Event(), threading.Event()
    ends: list[BaseException | None] = []

    def freeze() -> None:
        frozen.set()
        assert thawed.wait(WAIT_S)

    sink = sinks()
    stop_at(stop, sink, freeze, monkeypatch)

    def run() -> None:
        try:
            barrier(sink, 1)
        except TidemillError as error:
            ends.append(error)
        else:
            ends.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert frozen.wait(WAIT_S)
    again = sinks()
    barrier(again, 2)
    after(again, 3)
    thawed.set()
    thread.join(WAIT_S)
    assert len(ends) == 1
    assert ends[0] is not None, "an attempt that was overtaken is told so"
    assert held(db) == RIGHT
