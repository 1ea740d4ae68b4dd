"""Three small tables, random changes of them, and queries over them, for tests of views."""

# ruff: noqa: E501

from __future__ import annotations

import functools
import gzip
import json
import random
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemill.views import types as t
from tidemill.views.changes import CHANGE
from tidemill.views.engine import Engine
from tidemill.views.plan import Column, Plan, Table
from tidemill.views.shape import shape_of
from tidemill.views.sql import plan_of

ANALYSES = Path(__file__).parent / "analyses.json.gz"
"""What Spark made of QUERIES and OTHERS: tests/views/test_spark.py asks it again, and writes the file with REWRITE=1."""

Row = dict[str, Any]

ORDERS = Table(
    "shop",
    "orders",
    (Column("id", t.INT, False), Column("customer", t.INT), Column("state", t.STRING), Column("weight", t.DOUBLE), Column("day", t.DATE)),
    (0,),
)
LINES = Table(
    "shop",
    "order_lines",
    (Column("id", t.LONG, False), Column("order_id", t.INT), Column("price", pa.decimal128(10, 2)), Column("quantity", pa.int8())),
    (0,),
)
EVENTS = Table("shop", "events", (Column("customer", t.INT), Column("kind", t.STRING), Column("at", t.DATETIME)), ())
TABLES = (ORDERS, LINES, EVENTS)

QUERIES = (
    "SELECT o.id, o.customer, sum(l.price * l.quantity) AS total, count(*) AS n FROM orders o JOIN order_lines l ON l.order_id = o.id GROUP BY o.id, o.customer",
    "SELECT customer, count(*) AS n, sum(id) AS s, avg(id) AS a FROM orders GROUP BY customer",
    "SELECT state, sum(price) AS s, avg(price) AS a, count(price) AS c FROM orders o LEFT JOIN order_lines l ON o.id = l.order_id GROUP BY state",
    "SELECT customer, min(price) AS low, max(price) AS high, count(DISTINCT quantity) AS q, sum(DISTINCT price) AS d, avg(DISTINCT price) AS e "
    "FROM orders o JOIN order_lines l ON o.id = l.order_id GROUP BY customer",
    "SELECT count(*) AS n, sum(quantity) AS s, min(state) AS first FROM orders o FULL JOIN order_lines l ON o.id = l.order_id",
    "SELECT DISTINCT customer, state FROM orders",
    "SELECT kind, customer FROM events WHERE customer > 1 OR kind IS NULL",
    "SELECT e.kind, o.state, count(*) AS n FROM events e JOIN orders o ON e.customer <=> o.customer GROUP BY e.kind, o.state",
    "SELECT a.id AS one, b.id AS other FROM orders a JOIN orders b ON a.customer = b.customer AND a.id < b.id",
    "SELECT o.id, l.price, e.kind FROM orders o LEFT JOIN order_lines l ON l.order_id = o.id AND l.price > 3 RIGHT JOIN events e ON e.customer = o.customer",
    "SELECT id, state FROM orders WHERE id IN (SELECT order_id FROM order_lines WHERE price > 2)",
    "SELECT id FROM orders o WHERE NOT EXISTS (SELECT 1 FROM order_lines l WHERE l.order_id = o.id AND l.quantity > 1)",
    "SELECT id FROM orders LEFT SEMI JOIN events ON orders.customer = events.customer",
    "SELECT customer FROM orders UNION ALL SELECT quantity FROM order_lines",
    "SELECT customer FROM orders UNION SELECT customer FROM events",
    "SELECT id, customer, row_number() OVER (PARTITION BY customer ORDER BY id DESC) AS r, sum(id) OVER (PARTITION BY customer) AS s FROM orders",
    "SELECT id, rank() OVER (ORDER BY state) AS r, lag(id) OVER (PARTITION BY state ORDER BY id) AS before FROM orders",
    "SELECT id, price FROM order_lines ORDER BY price DESC, id LIMIT 3",
    "SELECT o.customer, t.n FROM orders o JOIN (SELECT order_id, count(*) AS n FROM order_lines GROUP BY order_id HAVING count(*) > 1) t ON t.order_id = o.id",
    "WITH big AS (SELECT order_id, max(price) AS p FROM order_lines GROUP BY order_id) SELECT p, count(*) AS n FROM big GROUP BY p",
    "SELECT state, sum(weight) AS s, avg(weight) AS a, bool_or(weight > 1) AS b FROM orders GROUP BY state",
    "SELECT count_if(price > 2) AS big, count(*) FILTER (WHERE quantity IS NULL) AS none, max(price) FILTER (WHERE quantity > 0) AS m FROM order_lines",
    "SELECT id, CASE WHEN price > 5 THEN 'much' WHEN price IS NULL THEN NULL ELSE 'little' END AS how, coalesce(price, 0) AS p, "
    "quantity % 3 AS m, price / 3 AS third, try_divide(price, quantity) AS each, quantity / 2 AS half, -quantity AS neg FROM order_lines",
    "SELECT id, concat(state, '-', CAST(customer AS STRING)) AS c, trim(state) AS u, length(state) AS n, substring(state, 1, 1) AS s, state LIKE 'o%' AS l, "
    "year(day) AS y, month(day) AS m, day + 1 AS tomorrow, day < DATE '2024-03-01' AS early, weight IS NULL AS w FROM orders",
    "SELECT state, count(*) AS n FROM orders GROUP BY state HAVING count(*) > 1 AND sum(customer) > 2",
    "SELECT l.id, l.price FROM order_lines l LEFT JOIN orders o ON l.quantity > o.customer WHERE o.id IS NULL",
    "SELECT o.state, e.kind, sum(l.price) AS s FROM orders o, order_lines l, events e WHERE o.id = l.order_id AND e.customer = o.customer GROUP BY 1, 2",
    "SELECT count(DISTINCT state, customer) AS n FROM orders",
    "SELECT count(*) AS n FROM orders",
    "SELECT o.id, o.state FROM orders o LEFT SEMI JOIN order_lines customer ON o.customer = customer.quantity",
    "SELECT a.id, b.id AS line FROM orders a LEFT JOIN order_lines b ON CASE WHEN a.id = b.order_id THEN true ELSE false END",
)
"""Each kind of step, some on top of others. Tables are those of database shop."""
NUMBER = "SELECT customer, count(*) AS n, sum(id) AS s FROM orders WHERE customer IS NOT NULL GROUP BY customer"
OTHERS = (NUMBER, "SELECT id AS _view FROM orders")


def find(database: str, name: str) -> Table | None:
    """What a catalog does."""
    return next((one for one in TABLES if (one.database, one.name) == (database, name)), None)


def planned(sql: str) -> Plan:
    """The plan of one of QUERIES and OTHERS."""
    return planned_by(recorded()[sql], sql)


def planned_by(document: str, sql: str) -> Plan:
    """The plan of a query that Spark has analysed."""
    named = [table for table in TABLES if f'"spark_catalog.shop.{table.name}"' in document]
    return plan_of(document, named, sql, "shop")


@functools.cache
def recorded() -> dict[str, str]:
    """What Spark made of QUERIES and OTHERS."""
    found: dict[str, str] = json.loads(gzip.decompress(ANALYSES.read_bytes()))
    return found


def engine(plan: Plan, path: str = ":memory:", *, content: bool = True) -> Engine:
    """The state of a view without rows."""
    return Engine(path, plan, shape_of(plan), "test", begin_ts=1, keeps_content=content)


class Shop:
    """The three tables, and transactions of random changes."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.rows: dict[str, list[Row]] = {table.name: [] for table in TABLES}
        self._next = 0

    def transaction(self, changes: int) -> dict[str, list[Row]]:
        """Do some changes. Returns the images of each table, with CHANGE."""
        found: dict[str, list[Row]] = {}
        for _ in range(changes):
            table = self._random.choice(TABLES)
            images = self._change(table)
            found.setdefault(table.name, []).extend(images)
        return found

    def _change(self, table: Table) -> list[Row]:
        rows = self.rows[table.name]
        choice = self._random.random()
        if not rows or choice < 0.45:
            row = self._row(table)
            rows.append(row)
            return [{**row, CHANGE: "insert"}]
        at = self._random.randrange(len(rows))
        if choice < 0.75:
            old, new = rows[at], {**rows[at], **self._some(table, rows[at])}
            if "id" in old and choice > 0.7:  # another key: the row goes, and one comes
                new["id"] = self._row(table)["id"]
            rows[at] = new
            return [{**old, CHANGE: "update_preimage"}, {**new, CHANGE: "update_postimage"}]
        return [{**rows.pop(at), CHANGE: "delete"}]

    def _some(self, table: Table, row: Row) -> Row:
        fresh = self._row(table)
        return {name: value for name, value in fresh.items() if name != "id" and self._random.random() < 0.6} or {**row}

    def _row(self, table: Table) -> Row:
        import datetime

        r = self._random
        self._next += 1
        some = lambda *values: r.choice((None, *values))  # noqa: E731 – short names keep the rows readable
        if table is ORDERS:
            day = some(datetime.date(2024, 2, 29), datetime.date(2023, 12, 31))
            return {
                "id": self._next % 7 + 10 * self._next,
                "customer": some(0, 1, 2, 3),
                "state": some("open", "öde", "", "o_"),
                "weight": some(0.1, 0.2, -0.0, 1e15),
                "day": day,
            }
        if table is LINES:
            orders = [one["id"] for one in self.rows["orders"]] or [0]
            price = some(Decimal("0.01"), Decimal("2.50"), Decimal("-3.33"), Decimal("99999999.99"))
            return {"id": self._next, "order_id": r.choice([None, *orders, *orders, 5]), "price": price, "quantity": some(0, 1, 2, -2, 7)}
        return {"customer": some(0, 1, 2), "kind": some("view", "buy"), "at": some(datetime.datetime(2024, 1, 1, 12))}


def arrow(table: Table, rows: list[Row]) -> pa.Table:
    """Rows of a table."""
    return pa.Table.from_pylist(rows, pa.schema([pa.field(one.name, one.type) for one in table.columns]))


def arrived(plan: Plan, changes: Mapping[str, list[Row]]) -> dict[int, pa.RecordBatchReader]:
    """Changes as the engine takes them."""
    found = {}
    for number, table in enumerate(plan.tables):
        if table.name in changes:
            schema = pa.schema([*(pa.field(one.name, one.type) for one in table.columns), pa.field(CHANGE, pa.string())])
            rows = [{name: row[name] for name in schema.names} for row in changes[table.name]]
            found[number] = pa.Table.from_pylist(rows, schema).to_reader()
    return found


def sorted_rows(found: pa.Table) -> list[tuple[Any, ...]]:
    """Rows without the row key, in an order of their own; floats to twelve digits, for sums depend on the order."""
    names = [name for name in found.column_names if name != "_row_key"]
    rows = [tuple(_plain(row[name]) for name in names) for row in found.to_pylist()]
    return sorted(rows, key=repr)


def _plain(value: Any) -> Any:
    return float(f"{value:.12g}") + 0.0 if isinstance(value, float) else value
