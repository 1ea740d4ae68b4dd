"""Random queries of Spark's grammar and random changes: a view has the rows that Spark finds in the tables, after each transaction.

`make views-fuzz SEEDS=1000 SEED=0` tries so many others, from that one on.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest

from tests.support.spark.sessions import spark_session
from tests.support.views.against import Against
from tests.support.views.grammar import query

pytestmark = [pytest.mark.spark, pytest.mark.slow]
session = spark_session()
FIRST, MANY = int(os.environ.get("SEED", "0")), int(os.environ.get("SEEDS", "7"))


def test_random_queries(session: Any) -> None:
    told, wrong = Counter[str](), []
    with Against() as against:
        for seed in range(FIRST, FIRST + MANY):
            sql = query(seed)
            found = against.outcome(sql, seed, [15, 6])
            told[found.engine] += 1
            if found.differences:
                wrong.append((seed, sql, found))
    print(dict(told))
    assert wrong == []
    assert told["embedded"]
    assert told["spark"]
