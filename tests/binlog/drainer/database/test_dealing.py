"""Which worker writes which rows, without a database."""

from __future__ import annotations

import random

import pytest

from tidemill.binlog.drainer.database.dealing import dealt
from tidemill.binlog.drainer.database.merging import merged_statements
from tidemill.binlog.messages import MutationType
from tidemill.binlog.outputs.transactions import TableChanges, Transaction
from tidemill.binlog.outputs.writes import RowWrite, Writers
from tidemill.binlog.rows import Image, RowChange
from tidemill.sinks.mysql.statements import Limits
from tidemill.tidb.datums import Datum, DatumFlag
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion

INSERT, UPDATE, DELETE = MutationType.INSERT, MutationType.UPDATE, MutationType.DELETE_ROW
_INT = {"Tp": 3, "Flag": 4099, "Flen": 11, "Charset": "binary"}


def info(*names: str, unique: tuple[str, ...] = (), key: bool = True, text: bool = False) -> TableInfo:
    """A table of integers, with a key on the first column and unique indexes on others. `text`: the others are texts."""
    other = {"Tp": 15, "Flag": 0, "Flen": 24, "Charset": "utf8mb4", "Collate": "utf8mb4_general_ci"} if text else {**_INT, "Flag": 0}
    first = {**_INT, "Flag": 4099 if key else 0}
    columns = [
        {"id": n, "name": {"O": name, "L": name}, "offset": n - 1, "state": 5, "type": first if n == 1 else other}
        for n, name in enumerate(names, 1)
    ]
    indexes = [
        {
            "id": n,
            "idx_name": {"O": name, "L": name},
            "idx_cols": [{"name": {"O": name, "L": name}, "offset": names.index(name), "length": -1}],
            "state": 5,
            "is_unique": True,
        }
        for n, name in enumerate(unique, 1)
    ]
    name = {"O": "t", "L": "t"}
    return TableInfo.from_json({"id": 50, "name": name, "state": 5, "pk_is_handle": key, "cols": columns, "index_info": indexes})


def image(*values: int | bytes | None) -> Image:
    def datum(value: int | bytes | None) -> Datum:
        flag = DatumFlag.NULL if value is None else DatumFlag.VARINT if isinstance(value, int) else DatumFlag.COMPACT_BYTES
        return Datum(flag, value)

    return {n: datum(value) for n, value in enumerate(values, 1)}


def writes(table: TableInfo, *rows: RowChange) -> list[RowWrite]:
    version = TableVersion("d", 2, table, (50,), 0)
    return list(Writers(hashed=True).work(Transaction(1, 2, (TableChanges(version, rows),))).rows())


def places(rows: list[RowWrite], workers: int) -> list[list[int]]:
    """Which rows each worker has, by their numbers."""
    return [[next(n for n, one in enumerate(rows) if one is row) for row in own] for own in dealt(rows, workers, 1)]


ONE = info("id", "v")
TWO = info("id", "v", unique=("v",))


def test_example_c_what_shares_a_key_runs_in_order_and_the_rest_beside() -> None:
    """SQL1 updates id 3 to 4, SQL2 id 2 to 5, SQL3 deletes id 3."""
    rows = writes(
        ONE,
        RowChange(UPDATE, image(3, 0), image(4, 0)),
        RowChange(UPDATE, image(2, 0), image(5, 0)),
        RowChange(DELETE, image(3, 0), None),
    )
    assert sorted(places(rows, 4)) == [[0, 2], [1]]


def test_example_d_a_row_that_is_deleted_and_replaced_is_one_workers() -> None:
    rows = writes(ONE, RowChange(DELETE, image(1, 0), None), RowChange(INSERT, None, image(2, 0)), RowChange(INSERT, None, image(1, 7)))
    assert sorted(places(rows, 4)) == [[0, 2], [1]]
    assert [one.text for one in merged_statements([rows[0], rows[2]], Limits(), safe=True)] == [
        b"REPLACE INTO `d`.`t` (`id`,`v`) VALUES (1,7)"
    ]


def test_a_row_that_ties_two_others_by_two_keys_brings_them_to_one_worker() -> None:
    rows = writes(
        TWO,
        RowChange(DELETE, image(1, 10), None),
        RowChange(DELETE, image(2, 20), None),
        RowChange(INSERT, None, image(9, 90)),
        RowChange(INSERT, None, image(1, 20)),
    )
    assert sorted(places(rows, 4)) == [[0, 1, 3], [2]]


def test_a_null_in_a_unique_key_ties_nothing() -> None:
    rows = writes(TWO, RowChange(INSERT, None, image(1, None)), RowChange(INSERT, None, image(2, None)))
    assert sorted(places(rows, 2)) == [[0], [1]]


@pytest.mark.parametrize("table", [info("id", "v", key=False, text=True), info("id", "v", unique=("v",), text=True)])
def test_rows_that_cannot_be_told_apart_are_one_workers(table: TableInfo) -> None:
    rows = writes(table, *(RowChange(INSERT, None, image(n, b"a" if n else b"A")) for n in range(4)))
    assert places(rows, 4) == [[0, 1, 2, 3]]


@pytest.mark.parametrize("seed", range(10))
def test_two_rows_with_a_value_of_a_key_in_common_are_in_order_in_one_worker(seed: int) -> None:
    rng = random.Random(seed)
    rows = writes(TWO, *(RowChange(INSERT, None, image(rng.randrange(40), rng.randrange(40))) for _ in range(30)))
    found = places(rows, 5)
    assert sorted(number for own in found for number in own) == list(range(30))
    worker = {number: n for n, own in enumerate(found) for number in own}
    assert all(own == sorted(own) for own in found)
    tied = [(a, b) for a in range(30) for b in range(a) if set(rows[a].hashes) & set(rows[b].hashes)]
    assert all(worker[a] == worker[b] for a, b in tied)


def test_merged_a_row_has_its_last_state_and_a_changed_key_is_deleted() -> None:
    rows = writes(
        ONE,
        RowChange(INSERT, None, image(1, 1)),
        RowChange(UPDATE, image(1, 1), image(1, 2)),
        RowChange(INSERT, None, image(2, 1)),
        RowChange(UPDATE, image(3, 1), image(4, 1)),
        RowChange(DELETE, image(5, 1), None),
    )
    assert [one.text for one in merged_statements(rows, Limits(), safe=False)] == [
        b"DELETE FROM `d`.`t` WHERE `id` IN (3,5)",
        b"REPLACE INTO `d`.`t` (`id`,`v`) VALUES (1,2),(2,1),(4,1)",
    ]


def test_merged_a_table_without_a_key_is_written_row_by_row() -> None:
    rows = writes(info("id", key=False), RowChange(INSERT, None, image(1)), RowChange(INSERT, None, image(1)))
    assert [one.text for one in merged_statements(rows, Limits(), safe=False)] == 2 * [b"INSERT INTO `d`.`t` (`id`) VALUES (1)"]
