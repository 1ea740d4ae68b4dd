"""An embedded upstream with orders and their lines, and a view over them, for tests of views end to end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidemill.testing import Upstream

TOTALS = """
    SELECT o.id, o.customer, sum(l.amount) AS total, count(*) AS n
    FROM shop.orders o JOIN shop.order_lines l ON l.order_id = o.id GROUP BY o.id, o.customer"""


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    """One for the module: each test has a database of its own names."""
    with Upstream() as found:
        yield found


@pytest.fixture
def shop(upstream: Upstream) -> Upstream:
    upstream.sql(
        "DROP DATABASE IF EXISTS shop",
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id INT PRIMARY KEY, customer VARCHAR(20), total BIGINT NOT NULL)",
        "CREATE TABLE shop.order_lines (id INT PRIMARY KEY, order_id INT NOT NULL, amount INT, note TEXT)",
    )
    return upstream
