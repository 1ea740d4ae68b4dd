"""Rows that come in batches, in a real MariaDB: as the real Drainer wrote them, and as they are upstream."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.support.binlog.drained import RecordedSchemas, history, recorded, with_fillers
from tests.support.binlog.effects import differing, rows_of, upstream
from tests.support.binlog.in_batches import as_binlog, delivered
from tests.support.binlog.made import INFO, MADE, MANNERS, SETTINGS, TWO_KEYS, ddl, inserted, outlet, two_key_history
from tests.support.binlog.read_logs import GivenSchemas
from tests.support.servers.mariadb import MariaDb
from tidemill.binlog.drainer import mysql
from tidemill.binlog.drainer.rows import batching
from tidemill.binlog.drainer.rows.reading import Delivered, Rows
from tidemill.binlog.outputs.transactions import DdlBinlog, Transaction
from tidemill.errors import SinkError


@pytest.mark.slow
def test_recorded_binlogs_in_batches_give_the_rows_that_the_real_drainer_wrote(mariadb: MariaDb) -> None:
    want, taken = upstream(mariadb)
    jobs = history()
    binlogs = with_fillers([binlog for case in recorded() if case.statements is not None for binlog in case.binlogs], jobs)
    refused = tuple(one.commit_ts for one in binlogs if one.commit_ts not in taken and not one.ddl_job_id)
    found = asyncio.run(delivered(RecordedSchemas(jobs), binlogs, ignore_txn_commit_ts=refused))
    assert sum(batch.num_rows for one in found if isinstance(one, Rows) for batch in one.batches) > 100
    for manner in MANNERS[:2]:
        mariadb.clear()
        made = outlet(mariadb, **manner)
        made.write([one for one in found if not isinstance(one, DdlBinlog) or one.commit_ts in taken])
        made.flush()
        made.close()
        assert differing(want, rows_of(mariadb)) == set(), manner


@pytest.mark.parametrize(("manner", "safe_s"), SETTINGS)
def test_values_of_unique_keys_that_go_from_row_to_row_end_where_they_are_upstream(
    mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch, manner: dict[str, Any], safe_s: float
) -> None:
    """In windows of few rows, of which one is written while the next is made."""
    monkeypatch.setattr(mysql, "SAFE_S", safe_s)
    monkeypatch.setattr(mysql, "WINDOW_ROWS", 50)
    monkeypatch.setattr("tidemill.binlog.drainer.rows.encoding.CHUNK", 16)
    monkeypatch.setattr("tidemill.sinks.mysql.window.LANE_ROWS", 4)
    transactions, rows = two_key_history(random.Random(str(manner)), 300)
    found = asyncio.run(delivered(GivenSchemas([TWO_KEYS]), [as_binlog(one) for one in transactions if isinstance(one, Transaction)]))
    assert all(isinstance(one, Rows) for one in found)
    assert written(mariadb, found, manner) == rows


@pytest.mark.parametrize(("manner", "safe_s"), SETTINGS)
def test_large_transactions_come_in_pieces_and_end_where_they_are_upstream(
    mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch, manner: dict[str, Any], safe_s: float
) -> None:
    """Each is taken for a large one. Values go from rows of one piece to rows of another."""
    monkeypatch.setattr(mysql, "SAFE_S", safe_s)
    monkeypatch.setattr(mysql, "WINDOW_ROWS", 3)
    monkeypatch.setattr(batching, "LARGE_BYTES", 0)
    monkeypatch.setattr(batching, "PIECE_ROWS", 2)
    monkeypatch.setattr("tidemill.binlog.drainer.rows.encoding.CHUNK", 2)
    transactions, rows = two_key_history(random.Random(str(manner)), 40, most=30)
    binlogs = [as_binlog(one) for one in transactions if isinstance(one, Transaction)]
    found = [one for binlog in binlogs for one in asyncio.run(delivered(GivenSchemas([TWO_KEYS]), [binlog]))]
    assert all(isinstance(one, Rows) and isinstance(one.batches, batching.Pieces) for one in found)
    assert written(mariadb, found, manner) == rows


def test_a_large_transaction_is_whole_and_tried_again_from_its_beginning(mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql, "WINDOW_ROWS", 3)
    monkeypatch.setattr(batching, "LARGE_BYTES", 0)
    monkeypatch.setattr(batching, "PIECE_ROWS", 4)
    mariadb.clear()
    made = outlet(mariadb, txn_batch=2)
    made.write([*MADE, *in_batches(inserted(3, 1))])
    mariadb.run("CREATE TRIGGER d.no BEFORE INSERT ON d.t FOR EACH ROW IF NEW.v = 66 THEN SIGNAL SQLSTATE '45000'; END IF")
    with pytest.raises(SinkError, match="1644"):
        made.write(in_batches(inserted(5, *range(50, 70))))
    assert mariadb.rows("SELECT id FROM d.t ORDER BY id") == [(1,)]
    mariadb.run("DROP TRIGGER d.no")
    for (number,) in mariadb.rows("SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND command = 'Sleep'"):
        mariadb.run(f"KILL {number}")
    made.write(in_batches(inserted(5, *range(50, 70))))
    assert mariadb.rows("SELECT COUNT(*), MAX(id) FROM d.t") == [(21, 69)]
    made.close()


def written(mariadb: MariaDb, found: list[Delivered], manner: dict[str, Any]) -> dict[int, int]:
    """The table of two keys, after everything was written into an empty database."""
    mariadb.clear()
    made = outlet(mariadb, **manner)
    made.write([MADE[0], ddl(2, "CREATE TABLE u (id INT PRIMARY KEY, v INT, UNIQUE (v))")])
    made.write(found)
    made.flush()
    made.close()
    return dict(mariadb.rows("SELECT id, v FROM d.u"))


def in_batches(*transactions: Transaction) -> list[Delivered]:
    return asyncio.run(delivered(GivenSchemas([INFO]), [as_binlog(one) for one in transactions]))


@pytest.mark.parametrize("manner", MANNERS)
def test_a_ddl_and_rows_one_by_one_come_after_the_batches_before_them(mariadb: MariaDb, manner: dict[str, Any]) -> None:
    mariadb.clear()
    made = outlet(mariadb, **manner)
    many = in_batches(inserted(3, *range(40)), inserted(5, *range(40, 80)))
    made.write([*MADE, *many, ddl(6, "UPDATE t SET v = v + 1000"), *in_batches(inserted(7, 100)), inserted(8, 100, 101)])
    made.flush()
    made.close()
    assert mariadb.rows("SELECT COUNT(*), SUM(v) FROM d.t") == [(82, sum(range(80)) + 80 * 1000 + 201)]


def test_a_batch_that_fails_is_told_before_a_position_is_written(mariadb: MariaDb) -> None:
    mariadb.clear()
    made = outlet(mariadb, worker_count=4, txn_batch=2)
    made.write(MADE)
    mariadb.run("CREATE TRIGGER d.no BEFORE INSERT ON d.t FOR EACH ROW IF NEW.v = 66 THEN SIGNAL SQLSTATE '45000'; END IF")
    made.write(in_batches(inserted(4, *range(60, 70))))
    with pytest.raises(SinkError, match="1644"):
        made.flush()
    made.write(in_batches(inserted(4, *range(60, 70))))
    with pytest.raises(SinkError, match="1644"):
        made.write(in_batches(inserted(6, 1)))
    made.close()


def test_transactions_of_one_worker_are_whole(mariadb: MariaDb) -> None:
    mariadb.clear()
    made = outlet(mariadb, txn_batch=2)
    made.write(MADE)
    mariadb.run("CREATE TRIGGER d.no BEFORE INSERT ON d.t FOR EACH ROW IF NEW.v = 66 THEN SIGNAL SQLSTATE '45000'; END IF")
    with pytest.raises(SinkError, match="1644"):
        made.write([*in_batches(inserted(4, 1, 2), inserted(6, 64, 65, 66)), ddl(7, "ALTER TABLE t ADD w INT")])
    made.close()
    assert mariadb.rows("SELECT id FROM d.t ORDER BY id") == [(1,), (2,)]


def test_each_transaction_of_a_worker_leaves_a_mark_of_the_channel(mariadb: MariaDb) -> None:
    mariadb.clear()
    made = outlet(mariadb, worker_count=3, txn_batch=100, loopback_control=True, channel_id=5)
    made.write([*MADE, *in_batches(inserted(3, *range(600)))])
    made.flush()
    made.close()
    assert {channel for (channel,) in mariadb.rows("SELECT channel_id FROM retl._drainer_repl_mark")} == {5}
    assert mariadb.rows("SELECT SUM(val) FROM retl._drainer_repl_mark") == [(6,)]


def test_with_sync_mode_2_columns_that_are_lacking_downstream_are_left_out(mariadb: MariaDb) -> None:
    mariadb.clear()
    lacking = [MADE[0], ddl(2, "CREATE TABLE t (ID INT PRIMARY KEY, own INT DEFAULT 8, v INT)")]
    made = outlet(mariadb, to={"sync_mode": 2})
    made.write([*lacking, *in_batches(inserted(3, 1)), ddl(4, "ALTER TABLE t ADD more INT"), *in_batches(inserted(5, 2))])
    made.flush()
    made.close()
    assert mariadb.rows("SELECT id, own, v, more FROM d.t ORDER BY id") == [(1, 8, 1, None), (2, 8, 2, 2)]
