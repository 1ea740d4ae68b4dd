"""Each expression that the embedded engine has, over values at the edges of their types: it gives what Spark gives."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.spark.sessions import spark_session
from tests.support.views.edges import EDGES, rows
from tests.support.views.expressions import BY_SPARK, EMBEDDED, ERRORS
from tidemill.views import types as t
from tidemill.views.changes import CHANGE
from tidemill.views.engine import Engine
from tidemill.views.plan import Table
from tidemill.views.refusal import ViewError
from tidemill.views.shape import shape_of
from tidemill.views.spark.analysis import analysed
from tidemill.views.spark.session import ViewSession
from tidemill.views.sql import plan_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]
session = spark_session()
SCHEMA = pa.schema([(one.name, one.type) for one in EDGES.columns])


def find(_: str, name: str) -> Table | None:
    return EDGES if name == "x" else None


class Both:
    """The table in both engines."""

    def __init__(self, spark: ViewSession) -> None:
        self._spark, self._rows = spark, pa.Table.from_pylist(rows(), SCHEMA)
        pq.write_table(self._rows, spark.add(EDGES) / "rows.parquet")
        spark.use("shop")

    def document(self, expressions: list[str]) -> tuple[str, str]:
        """A query for the expressions, and what Spark makes of it."""
        sql = f"SELECT id, {', '.join(f'{one} AS v{i}' for i, one in enumerate(expressions))} FROM x"
        return sql, analysed(self._spark, sql, find, "shop").document

    def embedded(self, sql: str, document: str, ids: list[int] | None = None) -> list[dict[str, Any]]:
        plan = plan_of(document, [EDGES], sql, "shop")
        table = self._rows if ids is None else self._rows.take(pa.array(ids))
        columns = [table[one.name] for one in plan.tables[0].columns]
        names = [one.name for one in plan.tables[0].columns]
        given = pa.table([*columns, pa.array(["insert"] * len(table))], [*names, CHANGE])
        with Engine(":memory:", plan, shape_of(plan), "test", begin_ts=1, keeps_content=True) as state:
            state.advance(2, {0: given.to_reader()})
            found = state.content().sort_by("id")
        assert [(one.name, t.spark_type(one.type)) for one in plan.root.columns] == self.kinds(sql)
        return found.to_pylist()

    def kinds(self, sql: str) -> list[tuple[str, str]]:
        return [(one.name(), one.dataType().catalogString()) for one in self._spark.java.sql(sql).schema().fields()]

    def spark(self, sql: str) -> list[dict[str, Any]]:
        return self._spark.rows(f"{sql} ORDER BY id", [EDGES]).to_pylist()


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and a == b


def test_what_the_embedded_engine_has_gives_what_spark_gives(session: Any) -> None:
    wrong = []
    with ViewSession() as spark:
        both = Both(spark)
        for first in range(0, len(EMBEDDED), 20):
            some = list(EMBEDDED[first : first + 20])
            sql, document = both.document(some)
            assert json.loads(document)["engine"] == "embedded", (json.loads(document)["why"], some)
            for mine, theirs in zip(both.embedded(sql, document), both.spark(sql), strict=True):
                wrong += [
                    (one, rows()[mine["id"]], mine[f"v{i}"], theirs[f"v{i}"])
                    for i, one in enumerate(some)
                    if not same(mine[f"v{i}"], theirs[f"v{i}"])
                ]
    assert wrong == []


def test_what_is_an_error_to_spark_is_one_to_the_embedded_engine(session: Any) -> None:
    with ViewSession() as spark:
        both = Both(spark)
        for expression in ERRORS:
            sql, document = both.document([expression])
            assert json.loads(document)["engine"] == "embedded", expression
            with pytest.raises(ViewError):
                both.spark(sql)
            with pytest.raises(ViewError):
                both.embedded(sql, document)


def test_what_the_embedded_engine_lacks_is_sparks(session: Any) -> None:
    with ViewSession() as spark:
        both = Both(spark)
        found = {one: json.loads(both.document([one])[1])["engine"] for one in BY_SPARK}
    assert found == dict.fromkeys(BY_SPARK, "spark")
