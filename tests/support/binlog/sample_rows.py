"""Rows of a table test.test (id int primary key, name varchar(24)), as binlogs have them."""

from __future__ import annotations

from tidemill.binlog.messages import MutationType, TableMutation
from tidemill.tidb.datums import Datum, DatumFlag, encode_datum
from tidemill.tidb.schema.model import TableInfo

_COLUMNS = [
    {"id": 1, "name": {"O": "id", "L": "id"}, "offset": 0, "state": 5, "type": {"Tp": 3, "Flag": 4099, "Flen": 11, "Charset": "binary"}},
    {"id": 2, "name": {"O": "name", "L": "name"}, "offset": 1, "state": 5, "type": {"Tp": 15, "Flag": 0, "Flen": 24, "Charset": "utf8mb4"}},
]
TEST = TableInfo.from_json({"id": 50, "name": {"O": "test", "L": "test"}, "state": 5, "pk_is_handle": True, "cols": _COLUMNS})


def number(value: int) -> bytes:
    """A number, as a handle, a column id or a value."""
    return encode_datum(Datum(DatumFlag.VARINT, value))


def name(text: bytes) -> bytes:
    """The pair of the column `name`."""
    return number(2) + encode_datum(Datum(DatumFlag.COMPACT_BYTES, text))


def whole(key: int, text: bytes) -> bytes:
    """The pairs of a row of which the key is a pair too."""
    return number(1) + number(key) + name(text)


_INSERT, _UPDATE, _DELETE = MutationType.INSERT, MutationType.UPDATE, MutationType.DELETE_ROW
EXAMPLE_A = TableMutation(
    50,
    inserted=(number(1) + name(b"a"), number(2) + name(b"b"), number(2) + name(b"c")),
    updated=(whole(1, b"a") + whole(1, b"c"), whole(2, b"b") + whole(2, b"d")),
    deleted=(whole(2, b"d"),),
    sequence=(_INSERT, _INSERT, _UPDATE, _UPDATE, _DELETE, _INSERT),
)
"""One transaction: insert (1,a), (2,b); update 1 to c, 2 to d; delete 2; insert (2,c)."""
