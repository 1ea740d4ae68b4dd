"""Views mean what Spark means: the same queries over the same tables, by Spark itself."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.spark.sessions import spark_session
from tests.support.views.shop import QUERIES, TABLES, Shop, arrived, arrow, engine, planned, sorted_rows
from tidemill.views import types as t

pytestmark = [pytest.mark.spark, pytest.mark.slow]
session = spark_session()


def test_rows_and_types_are_those_of_spark(session: Any) -> None:
    shop = Shop(7)
    first, second = shop.transaction(40), shop.transaction(30)
    session.sql("CREATE DATABASE IF NOT EXISTS shop")
    session.sql("USE shop")
    for table in TABLES:
        session.createDataFrame(arrow(table, shop.rows[table.name])).createOrReplaceTempView(table.name)
    wrong = []
    for sql in QUERIES:
        plan = planned(sql)
        with engine(plan) as state:
            state.advance(2, arrived(plan, first))
            state.advance(3, arrived(plan, second))
            ours = sorted_rows(state.content())
        theirs = session.sql(sql)
        kinds = [(one.name, one.dataType.simpleString()) for one in theirs.schema]
        if [(one.name, t.spark_type(one.type)) for one in plan.root.columns] != kinds:
            wrong.append((sql, [(one.name, t.spark_type(one.type)) for one in plan.root.columns], kinds))
        if ours != sorted_rows(theirs.toArrow()):
            wrong.append((sql, ours, sorted_rows(theirs.toArrow())))
    assert wrong == []
