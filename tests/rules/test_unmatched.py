"""Rules that match no table are named, with what was most likely meant."""

from __future__ import annotations

import pytest

from tidemill.rules.unmatched import unmatched

TABLES = [("shop", "orders"), ("shop", "items"), ("Logs", "events")]


def test_rules_that_match_nothing_are_named() -> None:
    assert unmatched(["shop.*", "logs.events", "*.*", "!nothing.*", "# a comment", ""], TABLES) == []
    assert unmatched(["shp.*", "shop.order", "/^x/.*"], TABLES) == [
        "filter rule 'shp.*' matches no table that is there now; did you mean `shop.*`?",
        "filter rule 'shop.order' matches no table that is there now; did you mean `shop.orders`?",
        "filter rule '/^x/.*' matches no table that is there now; one that comes later is taken",
    ]


@pytest.mark.parametrize("rule", ["shp.*", "shop.order", "SHOP.itms", "log.*"])
def test_what_was_meant_matches(rule: str) -> None:
    [warning] = unmatched([rule], TABLES)
    meant = warning.partition("did you mean `")[2].partition("`")[0]
    assert meant
    assert unmatched([meant], TABLES) == []


def test_case_counts_where_the_changefeed_says_so() -> None:
    assert unmatched(["logs.*"], TABLES) == []
    assert len(unmatched(["logs.*"], TABLES, case_sensitive=True)) == 1


def test_an_empty_cluster_has_no_tables_to_match() -> None:
    assert len(unmatched(["shop.*"], [])) == 1
    assert unmatched(["*.*"], []) == []
