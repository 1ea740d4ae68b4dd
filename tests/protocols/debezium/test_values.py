"""Values and defaults of single columns, beyond those that Debezium itself was seen to write."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.schema.tables import column
from tidemill.protocols.debezium.fields import field
from tidemill.protocols.debezium.values import value_text
from tidemill.tidb.rows.cells import Cell
from tidemill.tidb.schema.codes import ColumnFlag
from tidemill.tidb.schema.codes import MySQLType as T
from tidemill.tidb.schema.model import ColumnInfo

NOT_NULL = int(ColumnFlag.NOT_NULL)
UNSIGNED = int(ColumnFlag.UNSIGNED)


def made(tp: T, **parts: Any) -> ColumnInfo:
    return ColumnInfo.from_json({"id": 1, "name": "c"} | column(tp, **parts))


@pytest.mark.parametrize(
    ("kind", "cell", "text"),
    [
        (made(T.ENUM, Elems=["a,b", 'q"']), 2, r'"q\""'),
        (made(T.ENUM, Elems=["a"]), 0, '""'),
        (made(T.ENUM, Elems=["a"]), 9, '""'),
        (made(T.SET, Elems=["a", "b"]), 3, '"a,b"'),
        (made(T.SET, Elems=["a", "b"]), 8, '""'),
        (made(T.DATE), "0018-02-03", "17565"),  # 2018
        (made(T.DATE), "0099-12-31", "10956"),  # 1999
        (made(T.DATE), "0100-01-01", "-683003"),
        (made(T.DATE), "0000-02-29", "11016"),  # 2000
        (made(T.DATE), "2021-02-29", "null"),
        (made(T.DATE, Flag=NOT_NULL), "2021-00-01", "0"),
        (made(T.DATETIME, Decimal=3), "1969-12-31 23:59:59.999", "-1"),
        (made(T.DATETIME, Decimal=4), "1969-12-31 23:59:59.9999", "-100"),
        (made(T.DATETIME, Flag=NOT_NULL), "0000-00-00 00:00:00", "0"),
        (made(T.TIMESTAMP), "0000-00-00 00:00:00", '"1970-01-01T00:00:00Z"'),
        (made(T.TIMESTAMP, Decimal=2), "2038-01-19 03:14:07.99", '"2038-01-19T03:14:07.99Z"'),
        (made(T.DURATION), "-838:59:59.000001", "-3020399000001"),
        (made(T.BIT, Flen=1), 0, "false"),
        (made(T.BIT, Flen=17), 0x1_0203, '"AwIB"'),
        (made(T.LONGLONG, Flag=UNSIGNED), (1 << 64) - 2, "-2"),
        (made(T.NEWDECIMAL, Flen=30, Decimal=10), "-0.0000000001", "-1e-10"),
        (made(T.NEWDECIMAL, Flen=65), "123456789012345678901234567890", "1.2345678901234568e+29"),
        (made(T.FLOAT), 1e-7, "1e-7"),
        (made(T.DOUBLE), 1e21, "1e+21"),
        (made(T.VARCHAR), b'<&\x7f\x08\x01"\\\n\xe2\x80\xa8', '"<&\x7f\\u0008\\u0001\\"\\\\\\n\u2028"'),
        (made(T.VARCHAR), b"a\xffb", r'"a\ufffdb"'),
        (made(T.BLOB, Flag=int(ColumnFlag.BINARY)), b"\x00\xff", '"AP8="'),
        (made(T.JSON), '{"a": "<\\u0001>"}', '"{\\"a\\": \\"<\\\\u0001>\\"}"'),
        (made(T.VECTOR), "[1,2.5]", '"[1,2.5]"'),
    ],
)
def test_values(kind: ColumnInfo, cell: Cell, text: str) -> None:
    assert value_text(kind, cell).decode() == text


@pytest.mark.parametrize(
    ("kind", "default", "null"),
    [
        (made(T.VARCHAR, default="a<b"), '"a<b"', '"a<b"'),
        (made(T.VARCHAR, default="ab", Flag=int(ColumnFlag.BINARY)), '"ab"', '"YWI="'),
        (made(T.VARCHAR, default="uuid()", default_is_expr=True), None, "null"),
        (made(T.LONG, default="15"), "15", "15"),
        (made(T.LONGLONG, default="18446744073709551615", Flag=UNSIGNED), "-1", "-1"),
        (made(T.LONGLONG, default="9223372036854775807"), "9223372036854775807", "9223372036854775807"),
        (made(T.NEWDECIMAL, default="179394.2333", Flen=12, Decimal=6), "179394.2333", "179394.2333"),
        (made(T.FLOAT, default="3.14"), "3.14", "3.14"),
        (made(T.DATE, default="2023-12-27"), "19718", "19718"),
        (made(T.DATE, default="0000-00-00"), None, "null"),
        (made(T.DATE, default="0000-00-00", Flag=NOT_NULL), "0", "0"),
        (made(T.DATETIME, default="2023-12-27 12:27:23"), "1703680043000", "1703680043000"),
        (made(T.DATETIME, default="CURRENT_TIMESTAMP"), "0", "0"),
        (made(T.TIMESTAMP, default="2024-03-11 08:51:01.46", Decimal=2), '"2024-03-11T08:51:01.46Z"', '"2024-03-11T08:51:01.46Z"'),
        (made(T.TIMESTAMP, default="CURRENT_TIMESTAMP"), None, "null"),
        (made(T.TIMESTAMP, default="CURRENT_TIMESTAMP", Flag=NOT_NULL), '"1970-01-01T00:00:00Z"', "null"),
        (made(T.TIMESTAMP, default="0000-00-00 00:00:00"), None, "null"),
        (made(T.DURATION, default="12:27:23"), "44843000000", "44843000000"),
        (made(T.YEAR, default="99"), "1999", "1999"),
        (made(T.ENUM, default="b", Elems=["a", "b"]), '"b"', '"b"'),
        (made(T.SET, default="a,b", Elems=["a", "b"]), '"a,b"', '"a,b"'),
        (made(T.BIT, default="x", default_bit="AlU=", Flen=10), '"VQI="', '"VQI="'),
        (made(T.BIT, default="x", default_bit="AQ==", Flen=1), "true", "true"),
        (made(T.LONG), None, "null"),
    ],
)  # fmt: skip
def test_defaults_stand_in_schemas_and_for_null(kind: ColumnInfo, default: str | None, null: str) -> None:
    found = field(kind, extension=False).decode()
    assert found.partition(',"default":')[2].removesuffix("}") == (default or "")
    assert json.loads(found)["field"] == "c"
    assert value_text(kind, None).decode() == null


@pytest.mark.parametrize(
    ("kind", "members"),
    [
        (made(T.FLOAT, Decimal=-1), {"tidb_type": "float", "type": "float"}),
        (made(T.FLOAT, Decimal=2), {"tidb_type": "float", "type": "double"}),
        (made(T.LONG, Flag=UNSIGNED | NOT_NULL), {"tidb_type": "int unsigned", "type": "int64", "optional": False}),
        (made(T.NEWDECIMAL, Flag=UNSIGNED), {"tidb_type": "decimal", "type": "double"}),
        (made(T.BLOB), {"tidb_type": "blob", "type": "string"}),
        (made(T.VECTOR), {"tidb_type": "vector", "type": "string", "name": "io.debezium.data.TiDBVectorFloat32"}),
        (
            made(T.ENUM, Elems=["a,b", "it''s"]),
            {"tidb_type": "enum", "type": "string", "name": "io.debezium.data.Enum", "version": 1, "parameters": {"allowed": "a\\,b,it's"}},
        ),
    ],
)
def test_fields_with_the_extension(kind: ColumnInfo, members: dict[str, Any]) -> None:
    assert json.loads(field(kind, extension=True)) == {"optional": True, "field": "c"} | members
