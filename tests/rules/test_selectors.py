"""Column selectors: which columns may go, and what a table without them is."""

from __future__ import annotations

import re

import pytest

from tests.support.schema.tables import column, table
from tidemill.config.file import parse_config
from tidemill.errors import ConfigError
from tidemill.rules.selectors import without
from tidemill.rules.table_filter import ColumnFilter
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.tracking.versions import TableVersion

COLUMNS = [column(MySQLType.LONGLONG, name="id"), *(column(MySQLType.VARCHAR, name=n) for n in ("Name", "phone", "note"))]


def version(schema: str = "a") -> TableVersion:
    return TableVersion(schema, 1, table(COLUMNS, pk_is_handle=True), (100,), 0)


def dropped(text: str, *, hashed: tuple[int, ...] = (), schema: str = "a") -> list[int]:
    selectors = parse_config(text).column_selectors()
    return sorted(selectors.dropped(version(schema), hashed))


FIRST = """
[[sink.column-selectors]]
matcher = ["a.*"]
columns = ["id", "NAME"]
[[sink.column-selectors]]
matcher = ["*.*"]
columns = ["*", "!ph*"]
"""


def test_the_first_selector_that_matches_counts() -> None:
    assert dropped(FIRST) == [3, 4]
    assert dropped(FIRST, schema="b") == [3]
    assert dropped("") == []


def test_rules_about_columns() -> None:
    found = ColumnFilter(["*", "!/^n/", "note", '!"Phone"', "# nothing"])
    assert [found.matches(c) for c in ("id", "Name", "NOTE", "phone")] == [True, False, True, False]
    with pytest.raises(ConfigError, match="unexpected text after the column pattern"):
        ColumnFilter(["a.b"])


@pytest.mark.parametrize(
    ("columns", "hashed", "fault"),
    [
        ("'note'", (), "column 'id' of the handle key cannot be left out"),
        ("'id'", (2,), "column 'Name' cannot be left out, the dispatcher needs it"),
    ],
)
def test_columns_that_have_to_stay(columns: str, hashed: tuple[int, ...], fault: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"column selector for a.t: {fault}")):
        dropped(f"[[sink.column-selectors]]\nmatcher = ['*.*']\ncolumns = [{columns}]", hashed=hashed)


def test_some_column_is_left() -> None:
    keyless = TableVersion("a", 1, table(COLUMNS), (100,), 0)
    selectors = parse_config("[[sink.column-selectors]]\nmatcher = ['*.*']\ncolumns = ['none']").column_selectors()
    with pytest.raises(ConfigError, match="no column is left"):
        selectors.dropped(keyless, ())


def test_a_table_without_them() -> None:
    info = version().info
    assert [c.name for c in without(info, {3}).output_columns] == ["id", "Name", "note"]
    assert without(info, ()) is info


def test_patterns_are_checked_when_the_file_is_read() -> None:
    with pytest.raises(ConfigError, match=re.escape("sink.column-selectors[0].columns: 'a b'")):
        parse_config("[[sink.column-selectors]]\nmatcher = ['*.*']\ncolumns = ['a b']")
