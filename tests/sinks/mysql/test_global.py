"""transaction-atomicity=global against a real MariaDB: whole transactions over all tables, and each of them exactly once.

The table `k` has no key: a row that is written twice is there twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest

from tests.support.delivery.database_sinks import CREATE, LATER, change, fence, made_of, statements_of
from tests.support.servers.mariadb import MariaDb
from tidemill.errors import Fenced
from tidemill.kernels.rows.views import RawRecord
from tidemill.records import KIND_INSERT, KIND_UPDATE
from tidemill.sinks.base import BatchContext
from tidemill.sinks.mysql.connection import Connection, ServerFault

pytestmark = pytest.mark.slow

GLOBAL = "transaction-atomicity=global"


@pytest.fixture
def db(mariadb: MariaDb) -> MariaDb:
    mariadb.clear()
    mariadb.run(*CREATE)
    return mariadb


@pytest.fixture
def sinks(db: MariaDb) -> Iterator[Any]:
    with made_of(db) as make:
        yield make


def inserts(*transactions: int, tables: Sequence[int] = (0, 1, 2)) -> list[tuple[int, RawRecord]]:
    """Transactions that insert a row into each table; the number is key, value and what is added to LATER."""
    return [change(KIND_INSERT, n, n, LATER + n, table) for n in transactions for table in tables]


def held(db: MariaDb) -> dict[str, list[int]]:
    return {name: sorted(key for (key,) in db.rows(f"SELECT c1 FROM s.{name}")) for name in ("t", "u", "k")}


def checkpoint(db: MariaDb) -> int:
    return int(db.rows("SELECT checkpoint_ts FROM tidb_cdc.tidemill_feed_v1")[0][0])


@pytest.mark.not_tidb("its general log is not a table")
def test_transactions_downstream_end_where_transactions_upstream_end(db: MariaDb, sinks: Any) -> None:
    """Also those that are larger than a transaction downstream; and each one moves the checkpoint."""
    sink = sinks(GLOBAL + "&max-txn-row=4")
    sink.begin(1)
    db.run("SET GLOBAL log_output = 'TABLE'", "TRUNCATE mysql.general_log", "SET GLOBAL general_log = ON")
    sink.deliver(*inserts(1, 2, 3), *(change(KIND_UPDATE, n % 3 + 1, n + 20, LATER + 4, n % 2) for n in range(9)))
    sink.task.flush()
    db.run("SET GLOBAL general_log = OFF")
    statements = statements_of(db)
    places = [at for at, text in enumerate(statements) if text.startswith("BEGIN")]
    moves = []
    for begin, end in pairwise([*places, len(statements)]):
        texts = [text for text in statements[begin:end] if not text.startswith(("SELECT", "SET"))]
        assert texts[-1] == "COMMIT"
        assert texts[-2].startswith("UPDATE tidb_cdc.tidemill_feed_v1 SET checkpoint_ts = ")
        moves.append(int(texts[-2].split("checkpoint_ts = ")[1].split()[0]) - LATER)
    assert moves == [2, 4]
    assert checkpoint(db) == LATER + 4


def test_an_attempt_goes_on_behind_the_last_transaction_of_the_one_before(db: MariaDb, sinks: Any) -> None:
    sink = sinks(GLOBAL + "&max-txn-row=1")
    sink.begin(1)
    sink.deliver(*inserts(1, 2))
    sink.task.flush()
    sink.task.abandon()  # the task died here
    assert checkpoint(db) == LATER + 2
    again = sinks(GLOBAL)  # another process
    again.batch(2, *inserts(1, 2, 3))
    assert held(db) == {"t": [1, 2, 3], "u": [1, 2, 3], "k": [1, 2, 3]}
    assert checkpoint(db) == LATER + 10


@pytest.mark.parametrize("together", ["", "&multi-stmt-enable=false"])
def test_a_commit_whose_answer_is_lost_is_not_made_twice(db: MariaDb, sinks: Any, monkeypatch: pytest.MonkeyPatch, together: str) -> None:
    sink = sinks(GLOBAL + "&max-txn-row=3" + together)
    sink.begin(1)
    commit, lost = Connection.commit, [True, False, True]

    def deaf(self: Connection) -> None:
        commit(self)
        if lost and lost.pop(0):
            raise ServerFault(2013, "lost connection")

    sink.deliver(*inserts(1, 2, 3))
    _ = sink.task._in_force
    monkeypatch.setattr(Connection, "commit", deaf)
    sink.task.flush()
    assert not lost
    assert held(db)["k"] == [1, 2, 3]


def test_a_transaction_that_was_not_committed_is_made_again(db: MariaDb, sinks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sinks(GLOBAL)
    sink.begin(1)
    commit, times = Connection.commit, [1, 2]

    def dead(self: Connection) -> None:
        if times:
            times.pop()
            self.close()
            raise ServerFault(2013, "lost connection")
        commit(self)

    sink.deliver(*inserts(1, 2))
    _ = sink.task._in_force
    monkeypatch.setattr(Connection, "commit", dead)
    sink.task.flush()
    assert held(db) == {"t": [1, 2], "u": [1, 2], "k": [1, 2]}


def test_a_task_of_an_older_attempt_cannot_commit(db: MariaDb, sinks: Any) -> None:
    sink, zombie = sinks(GLOBAL), sinks(GLOBAL)
    taken: list[bool] = []
    zombie.begin(1, look=fence(taken))
    zombie.deliver(*inserts(1))
    _ = zombie.task._in_force
    sink.begin(2)
    taken.append(True)
    with pytest.raises(Fenced):
        zombie.task.flush()
    assert held(db)["t"] == []
    assert checkpoint(db) == 0


def test_an_interval_that_somebody_wants_again_is_written_again(db: MariaDb, sinks: Any) -> None:
    sinks(GLOBAL).batch(1, *inserts(1, tables=(0, 1)))
    db.run("UPDATE s.t SET c2 = 77")
    sinks(GLOBAL).batch(2, *inserts(1, tables=(0, 1)), to_ts=LATER + 20)
    assert db.rows("SELECT c2 FROM s.t") == [(1,)]
    assert checkpoint(db) == LATER + 20


def test_rows_of_an_initial_load_are_divided_and_leave_the_checkpoint(db: MariaDb, sinks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They all have one ts, and no transaction wrote them."""
    monkeypatch.setattr("tidemill.sinks.mysql.task.WINDOW_ROWS", 10)
    sink = sinks(GLOBAL + "&max-txn-row=4")
    loaded = [(KIND_INSERT, record._replace(start_ts=LATER, commit_ts=LATER)) for _, record in inserts(*range(1, 12), tables=(0, 1))]
    sink.begin(1, LATER - 1, LATER)
    sizes = []
    for one in (loaded[:11], loaded[11:]):
        sink.deliver(*one)
        sizes.append(len(sink.task._window))
    sink.task.flush()
    assert sizes == [11, 11]
    assert checkpoint(db) == 0
    sink.driver.finish_batch(BatchContext("feed", 1, 1, LATER - 1, LATER))
    assert held(db)["t"] == list(range(1, 12))
    assert checkpoint(db) == LATER
