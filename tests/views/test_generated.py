"""Random queries and random changes: a view has the rows that DuckDB finds in the tables by itself, after each transaction.

The queries are the same in every run. TIDEMILL_EXAMPLES=1000 tries so many others.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.support.views.generated import asked_of_duckdb, queries, rows_of
from tests.support.views.shop import Shop, arrived, engine, planned

EXAMPLES = os.environ.get("TIDEMILL_EXAMPLES")


@given(queries(), st.integers(0, 1 << 16), st.lists(st.integers(1, 12), min_size=1, max_size=4))
@settings(max_examples=int(EXAMPLES or 20), derandomize=EXAMPLES is None, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_queries(sql: str, seed: int, transactions: list[int]) -> None:
    note(sql)
    plan, shop = planned(sql), Shop(seed)
    with engine(plan) as state:
        for ts, size in enumerate(transactions, start=2):
            state.advance(ts, arrived(plan, shop.transaction(size)))
            truth = asked_of_duckdb(sql, shop.rows)
            assert rows_of(state.content()) == truth
            assert rows_of(state.whole()) == truth
