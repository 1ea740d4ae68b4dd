"""Views into a real database."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from tests.support.servers.mariadb import MariaDb, mariadb
from tests.support.views.shop import QUERIES, Shop, arrived, engine, planned
from tidemill.config.uri import parse_sink_uri
from tidemill.errors import SinkError
from tidemill.views import types as t
from tidemill.views.shape import WEIGHT, Keyed, Shape, shape_of
from tidemill.views.targets.mysql import MysqlTarget

__all__ = ["mariadb"]

pytestmark = pytest.mark.slow


def target(server: MariaDb, number: int, feed: str = "feed") -> MysqlTarget:
    options = parse_sink_uri(server.uri).mysql
    assert options is not None
    return MysqlTarget(options, f"v{number}", feed, shape_of(planned(QUERIES[number])))


def plain(row: tuple[Any, ...]) -> str:
    """A row to sort and compare: a database has 0 and 1 for conditions."""
    return repr([int(value) if isinstance(value, bool) else value for value in row])


@pytest.mark.parametrize("number", [0, 6, 23])
def test_the_table_has_the_rows_of_the_view(mariadb: MariaDb, number: int) -> None:
    plan, shop = planned(QUERIES[number]), Shop(number)
    with engine(plan, content=False) as state:
        into = target(mariadb, number)
        into.create()
        for ts in (2, 3, 4):
            state.advance(ts, arrived(plan, shop.transaction(20)))
            changes = state.pending()
            into.deliver(changes, ts)
            into.deliver(changes, ts)  # again, as after a crash: nothing happens
            assert into.delivered() == ts
            names = ", ".join(f"`{one.name}`" for one in plan.root.columns)
            rows = mariadb.rows(f"SELECT {names} FROM views.v{number}")
            assert sorted(map(plain, rows)) == sorted(plain(tuple(row.values())) for row in state.whole().to_pylist())
        into.resolved(9)
        assert into.delivered() == 9
        with pytest.raises(SinkError, match="another view"):
            target(mariadb, number, "other").create()
        into.drop()
        into.close()


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_value_that_a_database_cannot_keep_is_named_with_table_column_and_key(mariadb: MariaDb, value: float) -> None:
    mariadb.clear()
    options = parse_sink_uri(mariadb.uri).database
    shape = Shape(Keyed.COLUMNS, pa.schema([pa.field("id", t.INT, False), pa.field("v", t.DOUBLE)]), ("id",), ())
    into = MysqlTarget(options, "v", "view-v-1", shape)
    into.create()

    def deliver(number: float, ts: int) -> None:
        into.deliver(pa.table({"id": pa.array([7], pa.int32()), "v": pa.array([number]), WEIGHT: pa.array([1], pa.int8())}), ts)

    deliver(1.5, 101)
    with pytest.raises(SinkError, match=rf"views\.v: column v of the row with key id=7 is {value}") as refused:
        deliver(value, 102)
    assert not refused.value.retryable
    into.close()
    assert (mariadb.rows("SELECT id, v FROM views.v"), into.delivered()) == ([(7, 1.5)], 101)
    into.close()
