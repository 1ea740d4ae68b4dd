"""A changefeed stops where rows come into a table that it wants without change events."""

from __future__ import annotations

import pytest

from tests.support.schema import schemas as s
from tests.support.schema.schemas import begun_with_a_table as begun
from tidemill.changelog.log_format import LogIdentity
from tidemill.delivery.inputs.coverage import CoverageCheck
from tidemill.errors import DataWithoutEvents
from tidemill.tidb.schema.tracking.versions import TableVersion

DB, TABLE = 2, 10


def captured(wanted: str = "t") -> CoverageCheck:
    def wants(version: TableVersion) -> bool:
        return version.table == wanted

    return CoverageCheck(lambda: LogIdentity("1", 100, 1), wants)


@pytest.mark.parametrize(("mode", "word"), [(1, "imported"), (2, "restored")])
def test_a_table_that_is_put_into_another_mode(mode: int, word: str) -> None:
    history = begun(0)
    history.advance([s.put_table(109, 110, DB, s.table(TABLE, "t", mode=mode)), s.put_table(119, 120, DB, s.table(TABLE, "t"))], 130)
    assert history.barriers(100, 130) == [110, 120]
    check = captured()
    check.check(history, 100, 109)
    with pytest.raises(DataWithoutEvents, match=rf"rows are being {word} into d\.t from 110 "):
        check.check(history, 109, 110)
    captured("u").check(history, 109, 110)


def test_a_changefeed_that_starts_in_the_middle_of_an_import() -> None:
    history = begun(1)
    with pytest.raises(DataWithoutEvents, match=r"into d\.t"):
        captured().check(history, 100, 101)
