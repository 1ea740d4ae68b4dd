"""The five stops of the DDL barrier at which TiCDC's failover tests stop it, each with a process that dies there and one that freezes there
and goes on when another attempt has done everything, and more rows have come.

The DDL is a TRUNCATE: run once too often it would take rows that came later.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.delivery import frozen
from tests.support.delivery.database_sinks import CREATE, LATER, Sink, change, made_of
from tests.support.servers.mariadb import MariaDb
from tidemill.errors import TidemillError
from tidemill.records import KIND_INSERT
from tidemill.sinks.mysql.bookkeeping import Books
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


@pytest.fixture
def db(mariadb: MariaDb) -> MariaDb:
    mariadb.clear()
    mariadb.run(*CREATE)
    return mariadb


@pytest.fixture
def sinks(db: MariaDb) -> Iterator[Any]:
    with made_of(db) as make:
        yield make


STATEMENTS = {
    Stop.BEFORE_WRITE: (r"SET SESSION sql_mode = .*, timestamp = ", False),
    Stop.IN_WRITE: ("^TRUNCATE", False),
    Stop.AFTER_WRITE: ("^TRUNCATE", True),
}
"""Of the thread that runs the DDL: the statement, and whether the stop is behind it."""
METHODS = {Stop.BEFORE_CHECKPOINT: "finish", Stop.AT_FENCE: "begin"}


@contextmanager
def stopped(stop: Stop, here: Callable[[], None], patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Call `here` when the first driver comes to the stop, and only then."""
    if stop in STATEMENTS:
        pattern, behind = STATEMENTS[stop]
        with frozen.at(patch, pattern, here, behind=behind, thread="mysql-ddl"):
            yield
        return
    name, left = METHODS[stop], [1]
    method = getattr(Books, name)

    def call(*given: Any) -> Any:
        if left:
            left.pop()
            here()
        return method(*given)

    with patch.context() as inner:
        inner.setattr(Books, name, call)
        yield
    assert not left, f"no driver came to {stop}"


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
    sink = sinks()
    with stopped(stop, frozen.die, monkeypatch), pytest.raises(frozen.Killed):
        barrier(sink, 1)
    sink.close()
    again = sinks()
    barrier(again, 2)
    after(again, 3)
    assert held(db) == RIGHT


@pytest.mark.parametrize("stop", Stop)
def test_a_process_freezes_there_and_goes_on_later(db: MariaDb, sinks: Any, stop: Stop, monkeypatch: pytest.MonkeyPatch) -> None:
    asleep, thawed = threading.Event(), threading.Event()
    ends: list[BaseException | None] = []

    def freeze() -> None:
        asleep.set()
        assert thawed.wait(WAIT_S)

    sink = sinks()

    def run() -> None:
        try:
            barrier(sink, 1)
        except TidemillError as error:
            ends.append(error)
        else:
            ends.append(None)

    with stopped(stop, freeze, monkeypatch):
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        assert asleep.wait(WAIT_S)
        again = sinks()
        barrier(again, 2)
        after(again, 3)
        thawed.set()
        thread.join(WAIT_S)
    assert len(ends) == 1
    assert ends[0] is not None, "an attempt that was overtaken is told so"
    assert held(db) == RIGHT
