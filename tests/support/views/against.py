"""A view beside Spark: the same query, over the same tables at the same moment."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from tests.support.views.shop import TABLES, Shop, arrived, arrow, engine, find, planned_by, sorted_rows
from tidemill.views import types as t
from tidemill.views.plan import Plan
from tidemill.views.refusal import ViewError, ViewRefused
from tidemill.views.spark.analysis import analysed
from tidemill.views.spark.session import ViewSession


@dataclass(frozen=True)
class Outcome:
    """What a query came to. `engine`: embedded, spark; refused, with the reason; or fails, where Spark fails too."""

    engine: str
    why: str = ""
    differences: tuple[Any, ...] = ()


class Against:
    """Compares. A context manager."""

    def __init__(self) -> None:
        self._spark = ViewSession()
        self._places = {table.name: self._spark.add(table) for table in TABLES}
        self._spark.use("shop")
        self._documents: dict[str, str] = {}

    def __enter__(self) -> Against:
        return self

    def __exit__(self, *_: object) -> None:
        self._spark.close()

    def document(self, sql: str) -> str:
        """What Spark makes of a query."""
        if sql not in self._documents:
            self._documents[sql] = analysed(self._spark, sql, find, "shop").document
        return self._documents[sql]

    def outcome(self, sql: str, seed: int, transactions: list[int], *, each: bool = True) -> Outcome:
        """Follow a random history of the tables, and compare after each transaction, or after the last."""
        try:
            document = self.document(sql)
        except ViewRefused as error:
            return Outcome("refused", error.message)
        given = json.loads(document)
        plan = planned_by(document, sql)
        found = list(self._types(plan, sql))
        shop = Shop(seed)
        with engine(plan) as state:
            for ts, size in enumerate(transactions, start=2):
                images = shop.transaction(size)
                compared = each or ts == len(transactions) + 1
                try:
                    theirs = self._theirs(sql, shop) if compared else None
                except ViewError:
                    return Outcome("fails")
                try:
                    state.advance(ts, arrived(plan, images))
                except ViewError as error:
                    return Outcome(given["engine"], given["why"], (*found, error.message))
                if compared and (ours := sorted_rows(state.content())) != theirs:
                    found.append((ts, ours, theirs))
        return Outcome(given["engine"], given["why"], tuple(found))

    def _theirs(self, sql: str, shop: Shop) -> list[tuple[Any, ...]]:
        for table in TABLES:
            pq.write_table(arrow(table, shop.rows[table.name]), self._places[table.name] / "rows.parquet")
        return sorted_rows(self._spark.rows(sql, TABLES))

    def _types(self, plan: Plan, sql: str) -> Any:
        kinds = [(one.name(), one.dataType().catalogString()) for one in self._spark.java.sql(sql).schema().fields()]
        ours = [(one.name, t.spark_type(one.type)) for one in plan.root.columns]
        if ours != kinds:
            yield ours, kinds
