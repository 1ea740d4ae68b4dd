"""The outlet of databases against a real MariaDB: workers, merging, DDLs, the position."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.binlog.effects import differing, entries, rows_of, upstream
from tests.support.binlog.made import MANNERS, SETTINGS, outlet, two_key_history
from tests.support.servers.mariadb import MariaDb
from tidemill.binlog.ddls import Ddl
from tidemill.binlog.drainer.savepoint import Position
from tidemill.binlog.messages import MutationType
from tidemill.binlog.outputs.transactions import DdlBinlog, Entry, TableChanges, Transaction
from tidemill.binlog.rows import Image, RowChange
from tidemill.errors import SinkError
from tidemill.tidb.datums import Datum, DatumFlag
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion

INSERT, UPDATE, DELETE = MutationType.INSERT, MutationType.UPDATE, MutationType.DELETE_ROW
_COLUMNS = [
    {"id": n, "name": {"O": name, "L": name}, "offset": n - 1, "state": 5, "type": {"Tp": 3, "Flag": flag, "Flen": 11, "Charset": "binary"}}
    for n, name, flag in ((1, "id", 4099), (2, "v", 0))
]
INFO = TableInfo.from_json({"id": 50, "name": {"O": "t", "L": "t"}, "state": 5, "pk_is_handle": True, "cols": _COLUMNS})
VERSION = TableVersion("d", 2, INFO, (50,), 0)


def image(key: int, value: int) -> Image:
    return {1: Datum(DatumFlag.VARINT, key), 2: Datum(DatumFlag.VARINT, value)}


def transaction(ts: int, *rows: RowChange) -> Transaction:
    return Transaction(ts - 1, ts, (TableChanges(VERSION, rows),))


def ddl(ts: int, query: str, schema: str = "d") -> DdlBinlog:
    return DdlBinlog(ts, Ddl(schema, "t", query, query.startswith("CREATE DATABASE")))


MADE: list[Entry] = [ddl(1, "CREATE DATABASE d"), ddl(2, "CREATE TABLE t (id INT PRIMARY KEY, v INT)")]


ALONE = pytest.mark.thorough("one worker alone: many workers have more orders, and test_batches.py has this one with batches")


@pytest.mark.slow
@pytest.mark.parametrize("manner", [pytest.param(one, marks=[ALONE] * (one["worker_count"] == 1)) for one in MANNERS])
def test_every_manner_gives_the_rows_that_the_real_drainer_wrote(mariadb: MariaDb, manner: dict[str, Any]) -> None:
    want, taken = upstream(mariadb)
    found = entries()[1]
    made = outlet(mariadb, **manner)
    made.write([found[ts] for ts in sorted(taken)])
    made.close()
    assert differing(want, rows_of(mariadb)) == set()
    assert len(want) > 45


@pytest.mark.parametrize("manner", MANNERS)
def test_examples_c_and_d_in_a_database(mariadb: MariaDb, manner: dict[str, Any]) -> None:
    """(c) 3 becomes 4, 2 becomes 5, 3 is deleted, which was inserted again; (d) 1 is deleted and replaced: it is there at the end."""
    mariadb.clear()
    made = outlet(mariadb, **manner)
    made.write(
        [
            *MADE,
            transaction(3, *(RowChange(INSERT, None, image(n, n)) for n in (1, 2, 3))),
            transaction(4, RowChange(UPDATE, image(3, 3), image(4, 3)), RowChange(INSERT, None, image(3, 9))),
            transaction(5, RowChange(UPDATE, image(2, 2), image(5, 2)), RowChange(DELETE, image(3, 9), None)),
            transaction(6, RowChange(DELETE, image(1, 1), None), RowChange(INSERT, None, image(1, 7))),
        ]
    )
    made.close()
    assert mariadb.rows("SELECT id, v FROM d.t ORDER BY id") == [(1, 7), (4, 3), (5, 2)]


def test_a_ddl_runs_alone_between_rows_of_many_workers(mariadb: MariaDb) -> None:
    mariadb.clear()
    made = outlet(mariadb, worker_count=4, txn_batch=1)
    rows = [RowChange(INSERT, None, image(n, n)) for n in range(40)]
    update = transaction(5, RowChange(UPDATE, image(7, 7), image(7, 0)))
    made.write([*MADE, transaction(3, *rows), ddl(4, "UPDATE t SET v = v + 1000"), update])
    made.close()
    assert mariadb.rows("SELECT COUNT(*), SUM(v) FROM d.t") == [(40, sum(range(40)) + 40 * 1000 - 1007)]


@pytest.mark.parametrize("manner", MANNERS)
def test_a_transaction_that_fails_is_an_error_before_any_position_is_written(mariadb: MariaDb, manner: dict[str, Any]) -> None:
    mariadb.clear()
    made = outlet(mariadb, **manner)
    made.write(MADE)
    mariadb.run("CREATE TRIGGER d.no BEFORE INSERT ON d.t FOR EACH ROW IF NEW.v = 66 THEN SIGNAL SQLSTATE '45000'; END IF")
    made.save(Position(3))
    with pytest.raises(SinkError, match="1644"):
        made.write([transaction(4, *(RowChange(INSERT, None, image(n, n)) for n in range(60, 70)))])
    assert made.load() == Position(3)
    made.close()


def test_with_one_worker_a_transaction_that_fails_leaves_nothing(mariadb: MariaDb) -> None:
    mariadb.clear()
    made = outlet(mariadb, txn_batch=2)
    made.write(MADE)
    mariadb.run("CREATE TRIGGER d.no BEFORE INSERT ON d.t FOR EACH ROW IF NEW.v = 66 THEN SIGNAL SQLSTATE '45000'; END IF")
    with pytest.raises(SinkError, match="1644"):
        made.write(
            [
                transaction(4, *(RowChange(INSERT, None, image(n, n)) for n in (1, 2))),
                transaction(5, *(RowChange(INSERT, None, image(n, n)) for n in (64, 65, 66))),
            ]
        )
    made.close()
    assert mariadb.rows("SELECT id FROM d.t ORDER BY id") == [(1,), (2,)]


def test_a_row_that_is_there_already_is_replaced(mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind the first minutes: the second attempt replaces."""
    monkeypatch.setattr("tidemill.binlog.drainer.mysql.SAFE_S", 0.0)
    mariadb.clear()
    made = outlet(mariadb)
    made.write(MADE)
    mariadb.run("INSERT INTO d.t VALUES (1, 5)")
    made.write([transaction(4, RowChange(INSERT, None, image(1, 6)), RowChange(INSERT, None, image(2, 6)))])
    made.close()
    assert mariadb.rows("SELECT id, v FROM d.t ORDER BY id") == [(1, 6), (2, 6)]


def test_a_connection_that_is_ended_is_made_again(mariadb: MariaDb) -> None:
    mariadb.clear()
    made = outlet(mariadb, worker_count=2, txn_batch=1)
    made.write([*MADE, transaction(3, *(RowChange(INSERT, None, image(n, n)) for n in range(10)))])
    for (number,) in mariadb.rows("SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND command = 'Sleep'"):
        mariadb.run(f"KILL {number}")
    made.write([transaction(4, *(RowChange(DELETE, image(n, n), None) for n in range(10))), ddl(5, "ALTER TABLE t ADD w INT")])
    made.close()
    assert mariadb.rows("SELECT COUNT(*) FROM d.t") == [(0,)]


@pytest.mark.parametrize("mode", ["", "STRICT_TRANS_TABLES"])
def test_0_in_an_auto_increment_column_stays(mariadb: MariaDb, mode: str) -> None:
    mariadb.clear()
    made = outlet(mariadb, sql_mode=mode)
    made.write(
        [MADE[0], ddl(2, "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)"), transaction(3, RowChange(INSERT, None, image(0, 1)))]
    )
    made.close()
    assert mariadb.rows("SELECT id, v FROM d.t") == [(0, 1)]


@pytest.mark.parametrize(("manner", "safe_s"), SETTINGS)
def test_values_of_unique_keys_that_go_from_row_to_row_end_where_they_are_upstream(
    mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch, manner: dict[str, Any], safe_s: float
) -> None:
    monkeypatch.setattr("tidemill.binlog.drainer.mysql.SAFE_S", safe_s)
    rng = random.Random(str(manner))
    mariadb.clear()
    made = outlet(mariadb, **manner)
    made.write([MADE[0], ddl(2, "CREATE TABLE u (id INT PRIMARY KEY, v INT, UNIQUE (v))")])
    found, rows = two_key_history(rng, 120)
    for at in range(0, len(found), 40):
        made.write(found[at : at + 40])
    made.close()
    assert dict(mariadb.rows("SELECT id, v FROM d.u")) == rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "comment"),
    [
        (r"CREATE TABLE `d`.`e` (`id` INT PRIMARY KEY,`e` ENUM('a\b','\')) COMMENT = 'x\y'", "as TiDB prints it"),
        (r"create table e (id int primary key, e enum('a\\b','\\')) comment 'x\\y'", "as it was typed"),
    ],
)
def test_escapes_mean_what_they_mean_upstream(mariadb: MariaDb, query: str, comment: str) -> None:
    mariadb.clear()
    made = outlet(mariadb)
    made.write([MADE[0], ddl(2, query)])
    made.close()
    assert mariadb.rows("SELECT table_comment FROM information_schema.tables WHERE table_schema = 'd'") == [("x\\y",)], comment
    mariadb.run("INSERT INTO d.e VALUES (1, 'a\\\\b'), (2, '\\\\')")
    assert mariadb.rows("SELECT e + 0, e FROM d.e") == [(1.0, "a\\b"), (2.0, "\\")]


@pytest.mark.slow
def test_ddls_are_rewritten_for_mariadb(mariadb: MariaDb) -> None:
    mariadb.clear()
    index = (("mv", "MULTI_VALUED_INDEX"),)
    made = outlet(mariadb)
    made.write(
        [
            MADE[0],
            ddl(2, "CREATE TABLE t (id INT PRIMARY KEY, v INT, j JSON, CONSTRAINT ck CHECK (v > 0), "
                "KEY mv ((CAST(j->'$.a' AS UNSIGNED ARRAY))))"),
            ddl(3, "ALTER TABLE `t` DROP CHECK `ck`"),
            transaction(4, RowChange(INSERT, None, image(1, -1))),
            DdlBinlog(5, Ddl("d", "t", "ALTER TABLE `t` DROP INDEX `mv`, ADD COLUMN `c` TIME(6) DEFAULT '0:0:0.9'", False, special=index)),
            ddl(6, "ALTER TABLE `t` MODIFY COLUMN `c` TIME"),
        ]
    )  # fmt: skip
    made.close()
    assert mariadb.rows("SELECT id, v, CAST(c AS CHAR) FROM d.t") == [(1, -1, "00:00:01")]


@pytest.mark.slow
def test_what_no_other_database_can_do_names_the_way_on(mariadb: MariaDb) -> None:
    mariadb.clear()
    made = outlet(mariadb)
    with pytest.raises(SinkError, match="MariaDB cannot run RECOVER TABLE") as caught:
        made.write([*MADE, ddl(3, "RECOVER TABLE `t`")])
    made.close()
    assert "ignore-txn-commit-ts" in caught.value.hint


@pytest.mark.slow
def test_a_ddl_runs_at_its_own_time(mariadb: MariaDb) -> None:
    mariadb.clear()
    made = outlet(mariadb)
    now = "UNIX_TIMESTAMP('2024-02-29 12:30:15.123456') + 0.00000025"
    at = DdlBinlog(9, Ddl("d", "t", "ALTER TABLE t ADD COLUMN c DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)", False, now=now))
    made.write([*MADE, transaction(4, RowChange(INSERT, None, image(1, 1))), at])
    earlier = ddl(449_000_000_000_000_000, "ALTER TABLE t ADD COLUMN e DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP")
    made.write([earlier])
    made.close()
    [(exact, year)] = mariadb.rows("SELECT CAST(c AS CHAR), YEAR(e) FROM d.t")
    assert (exact, year) == ("2024-02-29 12:30:15.123456", 2024)
