"""A view over two joined tables: CPU of an interval with changes, beside computing the query again. `python bench/bench_views.py [ROWS]`.

Each interval has 10,000 changes (a second's worth at 10,000 changes/s): updates of lines, new lines and orders. The changes come as Arrow
batches, so reading the log is not in it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.report.figures import Figure, note
from tidemill.views.changes import CHANGE
from tidemill.views.engine import Engine
from tidemill.views.plan import Column, Plan, Table
from tidemill.views.shape import shape_of
from tidemill.views.sql import plan_of
from tidemill.views.view import by_spark

STAGE = "Views"
ORDERS = Table("shop", "orders", (Column("id", pa.int64(), False), Column("customer", pa.int32())), (0,))
LINES = Table(
    "shop", "lines", (Column("id", pa.int64(), False), Column("order_id", pa.int64()), Column("price", pa.decimal128(10, 2))), (0,)
)
SQL = """
    SELECT o.id, o.customer, sum(l.price) AS total, count(*) AS n
    FROM orders o JOIN lines l ON l.order_id = o.id GROUP BY o.id, o.customer"""
CHANGES, INTERVALS = 10_000, 10


def _rows(table: Table, columns: list[pa.Array], kind: str) -> pa.Table:
    schema = pa.schema([(one.name, one.type) for one in table.columns])
    return pa.table(
        [
            one.cast(pa.decimal128(38, 2)).cast(field.type) if pa.types.is_decimal(field.type) else one.cast(field.type)
            for one, field in zip(columns, schema, strict=True)
        ],
        schema,
    ).append_column(CHANGE, pa.array([kind] * len(columns[0]), pa.string()))


def _lines(ids: np.ndarray, orders: int, cents: np.ndarray, kind: str) -> pa.Table:
    return _rows(LINES, [pa.array(ids), pa.array(ids % orders), pa.array(cents.astype(np.int64))], kind)


def main(rows: int = 1_000_000) -> None:
    """Measure, and print."""
    orders = rows // 4
    analysis = by_spark(SQL, lambda _, name: {"orders": ORDERS, "lines": LINES}.get(name), "shop")
    plan: Plan = plan_of(analysis.document, analysis.tables, SQL, "shop")
    numbers = {table.name: i for i, table in enumerate(plan.tables)}
    with (
        tempfile.TemporaryDirectory() as folder,
        Engine(Path(folder) / "state.duckdb", plan, shape_of(plan), "bench", begin_ts=1, keeps_content=False) as engine,
    ):
        cents = np.zeros(rows, np.int64)
        ids = np.arange(orders, dtype=np.int64)
        first = {
            numbers["orders"]: _rows(ORDERS, [pa.array(ids), pa.array(ids % 1000)], "insert").to_reader(),
            numbers["lines"]: _lines(np.arange(rows, dtype=np.int64), orders, cents, "insert").to_reader(),
        }
        begun = time.process_time()
        engine.advance(2, first)
        print(f"first interval: {rows:,} lines, {orders:,} orders: {time.process_time() - begun:.1f} CPU s")
        random, taken, out = np.random.default_rng(1), 0.0, 0
        for number in range(INTERVALS):
            chosen = random.choice(rows, CHANGES, replace=False)
            before = _lines(chosen, orders, cents[chosen], "update_preimage")
            cents[chosen] += 1
            after = _lines(chosen, orders, cents[chosen], "update_postimage")
            begun = time.process_time()
            out += engine.advance(3 + number, {numbers["lines"]: pa.concat_tables([before, after]).to_reader()})
            engine.pending()
            engine.delivered()
            taken += time.process_time() - begun
        begun = time.process_time()
        found = engine.whole()
        again = time.process_time() - begun
        note(Figure(STAGE, f"an interval of {CHANGES:,} changes over {rows:,} lines", taken / INTERVALS, "CPU s", aim=0.5))
        note(Figure(STAGE, f"the query again over {rows:,} lines", again, "CPU s"))
        print(f"an interval of {CHANGES:,} changes at random: {taken / INTERVALS:.3f} CPU s ({out // INTERVALS:,} changes of the view)")
        print(f"the query again over all rows: {again:.3f} CPU s ({found.num_rows:,} rows): / {again * INTERVALS / taken:.1f}")


if __name__ == "__main__":
    main(*(int(one) for one in sys.argv[1:2]))
