"""The time at which a DDL was run upstream, from the columns that it added."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.schema.tables import column, table
from tidemill.sinks.mysql.moment import Moment
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import TableInfo

QUEUED = 1_700_000_000_123  # 2023-11-14 22:13:20.123 UTC
BEFORE = table([column(MySQLType.LONGLONG)], pk_is_handle=True)


def added(*given: tuple[MySQLType, int, str, str]) -> TableInfo:
    """The table with columns of a type and digits, their default and the value in older rows."""
    columns = [
        replace(BEFORE.columns[0], id=7 + i, name=f"n{i}", offset=1 + i, tp=tp, decimal=decimal, default=default, origin_default=origin)
        for i, (tp, decimal, default, origin) in enumerate(given)
    ]
    return replace(BEFORE, columns=(*BEFORE.columns, *columns))


def told(moment: Moment) -> str:
    """As a server takes it: it cuts what is below a microsecond."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(moment.now * 1_000_000))).isoformat(" ", "microseconds")


NOW = "CURRENT_TIMESTAMP"


@pytest.mark.parametrize(
    ("columns", "zone", "time", "offset"),
    [
        ([], "+00:00", "2023-11-14 22:13:20.123000+00:00", "+00:00"),
        ([(MySQLType.DATETIME, 6, NOW, "2023-11-14 22:13:20.654321")], "+00:00", "2023-11-14 22:13:20.654321+00:00", "+00:00"),
        ([(MySQLType.DATETIME, 6, NOW, "2023-11-14 23:13:20.654321")], "Europe/Paris", "2023-11-14 22:13:20.654321+00:00", "+01:00"),
        ([(MySQLType.TIMESTAMP, 3, NOW, "2023-11-14 22:13:20.654")], "Europe/Paris", "2023-11-14 22:13:20.654000+00:00", "+01:00"),
        (
            [(MySQLType.TIMESTAMP, 0, NOW, "2023-11-14 22:13:20"), (MySQLType.DATETIME, 6, NOW, "2023-11-14 22:13:20.9")],
            "+00:00", "2023-11-14 22:13:20.900000+00:00", "+00:00",
        ),
        ([(MySQLType.DATE, 0, "CURRENT_DATE", "2023-11-14")], "+00:00", "2023-11-14 22:13:20.123000+00:00", "+00:00"),
        ([(MySQLType.DATE, 0, "CURRENT_DATE", "2023-11-15")], "+00:00", "2023-11-15 00:00:00.000000+00:00", "+00:00"),
        ([(MySQLType.TIMESTAMP, 0, "2020-07-01 00:00:00", "2020-07-01 00:00:00")], "Europe/Paris", "2023-11-14 22:13:20.123000+00:00", ""),
        ([(MySQLType.TIMESTAMP, 0, "2020-01-01 00:00:00", "")], "Europe/Paris", "2023-11-14 22:13:20.123000+00:00", "+01:00"),
        ([(MySQLType.TIMESTAMP, 0, "0000-00-00 00:00:00", "")], "Europe/Paris", "2023-11-14 22:13:20.123000+00:00", "+01:00"),
    ],
)  # fmt: skip
def test_the_column_with_the_most_digits_tells(columns: list[tuple[MySQLType, int, str, str]], zone: str, time: str, offset: str) -> None:
    moment = Moment(BEFORE, added(*columns), QUEUED, zone)
    assert told(moment) == time
    assert moment.offset == offset


def test_a_session_of_an_unknown_zone_reads_a_local_time_itself() -> None:
    assert Moment(BEFORE, added((MySQLType.DATETIME, 3, NOW, "2023-11-14 22:13:20.654")), QUEUED, "").sql == (
        "UNIX_TIMESTAMP('2023-11-14 22:13:20.654000') + 0.00000025"
    )
    assert Moment(None, BEFORE, QUEUED, "").sql == "1700000000.12300025"
