"""Entries of small tables, made by hand, and the outlet that writes them into a MariaDB."""

from __future__ import annotations

import random
from datetime import UTC
from typing import Any

import pytest

from tests.support.servers.mariadb import MariaDb
from tidemill.binlog.ddls import Ddl
from tidemill.binlog.drainer.outlets import Outlet, open_outlet
from tidemill.binlog.drainer.settings import Downstream, DrainerSettings
from tidemill.binlog.messages import MutationType
from tidemill.binlog.outputs.transactions import DdlBinlog, Entry, TableChanges, Transaction
from tidemill.binlog.rows import Image, RowChange
from tidemill.tidb.datums import Datum, DatumFlag
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion

_COLUMNS = [
    {"id": n, "name": {"O": name, "L": name}, "offset": n - 1, "state": 5, "type": {"Tp": 3, "Flag": flag, "Flen": 11, "Charset": "binary"}}
    for n, name, flag in ((1, "id", 4099), (2, "v", 0), (3, "more", 0))
]
INFO = TableInfo.from_json({"id": 50, "name": {"O": "t", "L": "t"}, "state": 5, "pk_is_handle": True, "cols": _COLUMNS})


def inserted(ts: int, *keys: int) -> Transaction:
    """A transaction that inserts rows (key, key, key) into d.t."""
    rows = tuple(RowChange(MutationType.INSERT, None, {n: Datum(DatumFlag.VARINT, key) for n in (1, 2, 3)}) for key in keys)
    return Transaction(ts - 1, ts, (TableChanges(TableVersion("d", 2, INFO, (50,), 0), rows),))


def ddl(ts: int, query: str) -> DdlBinlog:
    """A DDL of d.t."""
    return DdlBinlog(ts, Ddl("d", "t", query, query.startswith("CREATE DATABASE")))


MADE: list[Entry] = [ddl(1, "CREATE DATABASE d"), ddl(2, "CREATE TABLE t (id INT PRIMARY KEY, v INT, more INT)")]


CLUSTER = 7


def outlet(db: MariaDb, *, to: dict[str, Any] | None = None, **settings: Any) -> Outlet:
    """An outlet into a MariaDB."""
    place = Downstream(host="127.0.0.1", port=db.port, **(to or {}))
    return open_outlet(DrainerSettings(db_type="mysql", to=place, **settings), CLUSTER, UTC)


MANNERS: list[dict[str, Any]] = [
    {"worker_count": 1},
    {"worker_count": 8, "txn_batch": 3},
    {"worker_count": 8, "txn_batch": 20, "to": {"merge": True}},
    {"worker_count": 1, "txn_batch": 20, "to": {"merge": True}},
    {"worker_count": 8, "enable_dispatch": False},
]
SAFE_S = (0.0, 300.0)
_OTHER = pytest.mark.thorough("each manner is run with the other time, and each time with other manners")
SETTINGS = [
    pytest.param(manner, safe_s, marks=[_OTHER] * other)
    for number, manner in enumerate(MANNERS)
    for safe_s, other in zip(SAFE_S, (not number % 2, number % 2), strict=True)
]
"""Manners, and how long a Drainer replaces rows for."""


_UNIQUE = {"id": 1, "idx_name": {"O": "v", "L": "v"}, "idx_cols": [{"name": {"O": "v", "L": "v"}, "offset": 1, "length": -1}], "state": 5}
TWO_KEYS = TableInfo.from_json(
    {
        "id": 51,
        "name": {"O": "u", "L": "u"},
        "state": 5,
        "pk_is_handle": True,
        "cols": _COLUMNS[:2],
        "index_info": [{**_UNIQUE, "is_unique": True}],
    }
)


def two(key: int, value: int) -> Image:
    """A row of it."""
    return {1: Datum(DatumFlag.VARINT, key), 2: Datum(DatumFlag.VARINT, value)}


def two_key_history(rng: random.Random, count: int, most: int = 5) -> tuple[list[Entry], dict[int, int]]:
    """Transactions that an upstream with two unique keys may have run, where values go from row to row, and its rows afterwards.

    `most`: statements of a transaction."""
    rows: dict[int, int] = {}
    found: list[Entry] = []
    for ts in range(10, 10 + count):
        changes: list[RowChange] = []
        for _ in range(rng.randrange(1, most + 1)):
            key, value = rng.randrange(90), rng.randrange(90)
            if value in rows.values() and rows.get(key) != value:
                other = next(one for one, held in rows.items() if held == value)
                changes.append(RowChange(MutationType.DELETE_ROW, two(other, rows.pop(other)), None))
            if key in rows and rng.random() < 0.3:
                changes.append(RowChange(MutationType.DELETE_ROW, two(key, rows.pop(key)), None))
            elif key in rows:
                changes.append(RowChange(MutationType.UPDATE, two(key, rows[key]), two(key, value)))
                rows[key] = value
            else:
                changes.append(RowChange(MutationType.INSERT, None, two(key, value)))
                rows[key] = value
        found.append(Transaction(ts - 1, ts, (TableChanges(TableVersion("d", 2, TWO_KEYS, (51,), 0), tuple(changes)),)))
    return found, rows
