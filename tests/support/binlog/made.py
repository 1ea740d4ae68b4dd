"""A few entries of a small table, made by hand."""

from __future__ import annotations

from tidemill.binlog.ddls import Ddl
from tidemill.binlog.messages import MutationType
from tidemill.binlog.outputs.transactions import DdlBinlog, Entry, TableChanges, Transaction
from tidemill.binlog.rows import RowChange
from tidemill.tidb.datums import Datum, DatumFlag
from tidemill.tidb.schema.model import TableInfo
from tidemill.tidb.schema.tracking.versions import TableVersion

_COLUMNS = [
    {"id": n, "name": {"O": name, "L": name}, "offset": n - 1, "state": 5, "type": {"Tp": 3, "Flag": flag, "Flen": 11, "Charset": "binary"}}
    for n, name, flag in ((1, "id", 4099), (2, "v", 0), (3, "more", 0))
]
_INFO = TableInfo.from_json({"id": 50, "name": {"O": "t", "L": "t"}, "state": 5, "pk_is_handle": True, "cols": _COLUMNS})


def inserted(ts: int, *keys: int) -> Transaction:
    """A transaction that inserts rows (key, key, key) into d.t."""
    rows = tuple(RowChange(MutationType.INSERT, None, {n: Datum(DatumFlag.VARINT, key) for n in (1, 2, 3)}) for key in keys)
    return Transaction(ts - 1, ts, (TableChanges(TableVersion("d", 2, _INFO, (50,), 0), rows),))


def ddl(ts: int, query: str) -> DdlBinlog:
    """A DDL of d.t."""
    return DdlBinlog(ts, Ddl("d", "t", query, query.startswith("CREATE DATABASE")))


MADE: list[Entry] = [ddl(1, "CREATE DATABASE d"), ddl(2, "CREATE TABLE t (id INT PRIMARY KEY, v INT, more INT)")]
