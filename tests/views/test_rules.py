"""Views that are kept by the delta rules have the rows that the query has over the tables, after each transaction."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.views.shop import QUERIES, Shop, arrived, engine, planned, sorted_rows


@pytest.mark.parametrize("sql", QUERIES)
def test_a_view_has_the_rows_of_its_query(sql: str) -> None:
    follow(sql, seed=1, transactions=[1, 25, 9])


@given(st.sampled_from(QUERIES), st.integers(0, 1 << 30), st.lists(st.integers(1, 8), min_size=1, max_size=6))
@settings(max_examples=8, deadline=None)
def test_random_changes(sql: str, seed: int, transactions: list[int]) -> None:
    follow(sql, seed, transactions)


def follow(sql: str, seed: int, transactions: list[int]) -> None:
    plan, shop = planned(sql), Shop(seed)
    with engine(plan) as state:
        for ts, size in enumerate(transactions, start=2):
            state.advance(ts, arrived(plan, shop.transaction(size)))
            assert sorted_rows(state.content()) == sorted_rows(state.whole())
            assert state.resolved_ts == ts
