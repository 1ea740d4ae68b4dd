"""Rows that are written differently and are the same, and those that are not."""

from __future__ import annotations

import pytest

from tests.support.schema.tables import column, table
from tidemill.diff.model import DiffTable
from tidemill.diff.rows import What, compare
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.types.jsonstyle import JsonStyle

COLUMNS = [column(MySQLType.LONG), column(MySQLType.JSON)]
TABLES = {name: DiffTable.of(0, "app", table(COLUMNS, pk_is_handle=name == "keyed"), JsonStyle.GO) for name in ("keyed", "keyless")}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ("100000000000000000000", "1e20", True),
        ("-100000000000000000000", "-1e20", True),
        ("[18446744073709551616]", "[1.8446744073709552e19]", True),
        ('{"bb": 1, "a": 2}', '{"a": 2, "bb": 1}', True),
        ("18446744073709551615", "1.8446744073709552e19", False),
        ("9007199254740993", "9007199254740992", False),
        ("100000000000000000000", "1e21", False),
        ("1", "true", False),
        ("[1, 2]", "[2, 1]", False),
    ],
)
def test_documents(name: str, ours: str, theirs: str, same: bool) -> None:
    upstream, downstream = ((b"1", f"1,'{text}'".encode()) for text in (ours, theirs))
    found = [one.what for one in compare(TABLES[name], [upstream], [downstream])]
    assert found == ([] if same else [What.CHANGED] if name == "keyed" else [What.MISSING, What.EXTRA])
