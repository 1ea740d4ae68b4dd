"""The total of each order, kept up to date out of orders and their lines, and always that of whole transactions.

    pip install 'tidemill[views,lake,playground]'
    python examples/order_totals.py

The upstream is a small TiDB in this process. With a cluster of yours, `log` is what `tidemill capture --log` writes, and
`tidemill view run` keeps the view.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tidemill.testing import Upstream
from tidemill.views import View, Views, create

TOTALS = """
    SELECT o.id, o.customer, sum(l.price * l.quantity) AS total, count(*) AS positions
    FROM shop.orders o JOIN shop.order_lines l ON l.order_id = o.id
    GROUP BY o.id, o.customer"""


def main() -> None:
    """Create the view, change orders, and print the totals after each change."""
    with tempfile.TemporaryDirectory() as folder, Upstream() as upstream:
        upstream.sql(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.orders (id INT PRIMARY KEY, customer VARCHAR(20))",
            "CREATE TABLE shop.order_lines (id INT PRIMARY KEY, order_id INT NOT NULL, price DECIMAL(10,2), quantity INT)",
        )
        views = Views(Path(folder) / "views")
        create(views, "order_totals", upstream.log, TOTALS, "memory")
        with View(views, "order_totals") as view:
            for statements in (
                ("BEGIN", "INSERT INTO shop.orders VALUES (1, 'Ada')", "INSERT INTO shop.order_lines VALUES (1, 1, 2.50, 4)", "COMMIT"),
                ("BEGIN", "INSERT INTO shop.orders VALUES (2, 'Grace')", "UPDATE shop.order_lines SET order_id = 2 WHERE id = 1", "COMMIT"),
                ("INSERT INTO shop.order_lines VALUES (2, 2, 1.00, 1)", "DELETE FROM shop.orders WHERE id = 1"),
            ):
                upstream.sql(*statements)
                view.catch_up()
                print(f"at {view.resolved_ts}: {view.read().to_pylist()}")


if __name__ == "__main__":
    main()
