"""Views mean what Spark means: the same queries over the same tables, by Spark itself.

Rows are compared behind the last transaction: `test_rules.py` has them behind each, without Spark.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from tests.support.spark.sessions import spark_session
from tests.support.views.against import Against
from tests.support.views.shop import ANALYSES, ORDERS, OTHERS, QUERIES, recorded
from tidemill.views.spark import session as views_spark
from tidemill.views.sql.choice import EMBEDDED, SPARK

pytestmark = [pytest.mark.spark, pytest.mark.slow]
session = spark_session()

ODD = {
    "SELECT id FROM orders WHERE state NOT LIKE 'o%'": EMBEDDED,
    "SELECT id, state NOT LIKE '%e%' AS l FROM orders": EMBEDDED,
    "SELECT id, sum(id) OVER w AS s FROM orders WINDOW w AS (PARTITION BY customer)": EMBEDDED,
    "SELECT id, concat_ws('-', state, state) AS c FROM orders": SPARK,
    "SELECT id FROM orders o WHERE EXISTS (SELECT count(*) FROM order_lines l WHERE l.order_id = o.id)": EMBEDDED,
    "SELECT id FROM orders WHERE state = 'it''s' OR state = 'open'": EMBEDDED,
    "SELECT id, CAST(customer AS FLOAT) + 1 AS f, CAST(customer AS FLOAT) AS g FROM orders": EMBEDDED,
    "SELECT 1 AS one FROM orders HAVING 1 = 1": EMBEDDED,
    "SELECT id, price / 0.00 AS v FROM order_lines WHERE price IS NULL": EMBEDDED,
    "SELECT id, CAST(NULL AS DECIMAL(10,2)) / (price - price) AS v FROM order_lines": EMBEDDED,
    "SELECT id, CAST(weight AS FLOAT) AS f FROM orders": SPARK,
    "SELECT id, upper(concat(state, 'ß')) AS u, lower('İ') AS l FROM orders": SPARK,
    "SELECT id FROM orders WHERE day > '2024-01'": EMBEDDED,
    "SELECT ID AS Foo FROM orders": EMBEDDED,
    "SELECT customer FROM orders WHERE id NOT IN (SELECT order_id FROM order_lines)": EMBEDDED,
    "SELECT id FROM orders WHERE customer > (SELECT avg(customer) FROM orders)": SPARK,
    "SELECT customer, state, count(*) AS n FROM orders GROUP BY CUBE(customer, state)": SPARK,
    "SELECT customer FROM orders INTERSECT SELECT customer FROM events": EMBEDDED,
    "SELECT customer FROM orders EXCEPT SELECT customer FROM events": EMBEDDED,
    "SELECT id, sum(id) OVER (PARTITION BY customer ORDER BY id ROWS 1 PRECEDING) AS s FROM orders": SPARK,
    "SELECT o.id FROM orders o JOIN order_lines l USING (id)": EMBEDDED,
}
"""Queries that were once computed otherwise than Spark does, or refused: which engine has them."""

AGAIN = [QUERIES[number] for number in (1, 8, 12, 13, 18, 19, 25, 26, 28, 29)]
"""Queries whose steps others have, too: groups and averages, joins, a semi join, a union, HAVING, a query in FROM, a count."""
ONCE = [sql for sql in QUERIES if sql not in AGAIN]


@pytest.fixture(scope="module")
def against(session: Any) -> Iterator[Against]:
    with Against() as found:
        yield found


@pytest.mark.parametrize(
    "queries", [ONCE, pytest.param(AGAIN, marks=pytest.mark.thorough("others have their steps"))], ids=["once", "again"]
)
def test_rows_and_types_are_those_of_spark(against: Against, queries: list[str]) -> None:
    outcomes = {sql: against.outcome(sql, 7, [40, 30], each=False) for sql in queries}
    assert {sql: one.differences for sql, one in outcomes.items() if one.differences} == {}
    assert {one.engine for one in outcomes.values()} == {EMBEDDED}


def test_queries_that_were_once_computed_otherwise(against: Against) -> None:
    outcomes = {sql: against.outcome(sql, 3, [30, 9], each=False) for sql in ODD}
    assert {sql: one.differences for sql, one in outcomes.items() if one.differences} == {}
    assert {sql: one.engine for sql, one in outcomes.items()} == ODD


def test_the_recorded_analyses_are_those_of_spark(against: Against) -> None:
    """`REWRITE=1` writes them."""
    found = {sql: against.document(sql) for sql in (*QUERIES, *OTHERS)}
    if os.environ.get("REWRITE"):
        ANALYSES.write_bytes(gzip.compress(json.dumps(found, sort_keys=True).encode(), mtime=0))
        recorded.cache_clear()
    assert {sql: numbered(one) for sql, one in found.items()} == {sql: numbered(one) for sql, one in recorded().items()}


def test_where_no_spark_runs_one_is_started_and_stopped(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []

    def start(_: Path, **given: Any) -> Any:
        done.append(given)
        return session.sparkContext

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(views_spark, "start_context", start)
    monkeypatch.setattr(views_spark, "stop_spark", done.append)
    with views_spark.ViewSession() as spark:
        spark.add(ORDERS)
        assert len(done) == 1
    assert done == [{"master": "local[1]", "defaults": views_spark.STARTED}, session.sparkContext]


def numbered(document: str) -> str:
    """A document whose attributes have numbers of their own: Spark counts on from query to query."""
    seen: dict[str, int] = {}
    return re.sub(r'\{"id": ?(\d+)\}', lambda found: f"#{seen.setdefault(found[1], len(seen))}", document)
