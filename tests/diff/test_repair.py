"""The SQL that repairs a downstream, as its server takes it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.schema.tables import column, table
from tidemill.diff.model import DiffTable
from tidemill.diff.repair import creating, statements
from tidemill.diff.rows import RowDifference, What
from tidemill.sinks.mysql.session import Server
from tidemill.tidb.schema.codes import MySQLType, PartitionType
from tidemill.tidb.schema.model import PartitionDefinition, PartitionInfo
from tidemill.tidb.types.jsonstyle import JsonStyle

COLUMNS = [column(MySQLType.LONG), column(MySQLType.LONG)]
KEYED, KEYLESS = (DiffTable.of(0, "app", table(COLUMNS, pk_is_handle=keyed), JsonStyle.GO) for keyed in (True, False))


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("10.11.19-MariaDB", " DEFAULT);"),
        ("8.0.11-TiDB-v8.5.7", " DEFAULT);"),
        ("9.7.4", "-- MySQL cannot run a DEFAULT partition of LIST: "),
    ],
)
def test_a_table_that_the_server_cannot_make_is_a_comment_with_its_cure(version: str, expected: str) -> None:
    parts = (PartitionDefinition(101, "a", (), (("1",),)), PartitionDefinition(102, "d", (), ()))
    info = replace(KEYED.info, partitioning=PartitionInfo(PartitionType.LIST, "`c1`", (), True, parts, (), (), 0, (), 0))
    *_, text = creating(replace(KEYED, info=info, origin=info), Server(version))
    assert expected in text
    assert not text.startswith("--") or (text.count("\n") == 0 and "by hand" in text)


def test_rows_are_written_as_sinks_write_them() -> None:
    found = [
        RowDifference(0, What.CHANGED, b"1", b"1,2", b"1,3", ("c2",)),
        RowDifference(0, What.MISSING, b"2", b"2,2"),
        RowDifference(0, What.EXTRA, b"3", None, b"3,3"),
        RowDifference(1, What.MISSING, b"", b"4,4", times=2),
        RowDifference(1, What.EXTRA, b"`c1`<=>5 AND `c2`<=>5", None, b"5,5", times=2),
    ]
    assert [*statements([KEYED, KEYLESS], found)] == [
        b"DELETE FROM `app`.`t` WHERE `c1`=3 LIMIT 1;",
        b"-- differs in c2\nREPLACE INTO `app`.`t` (`c1`,`c2`) VALUES (1,2);",
        b"REPLACE INTO `app`.`t` (`c1`,`c2`) VALUES (2,2);",
        *2 * [b"DELETE FROM `app`.`t` WHERE `c1`<=>5 AND `c2`<=>5 LIMIT 1;"],
        *2 * [b"INSERT INTO `app`.`t` (`c1`,`c2`) VALUES (4,4);"],
    ]
