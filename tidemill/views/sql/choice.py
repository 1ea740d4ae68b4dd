"""Which engine keeps a view, and by which plan: `chosen` when it is created, `plan_of` whenever it is read. Pure.

The embedded engine has what it is proven to compute as Spark does. Everything else that gives the same rows of the same tables each time is
Spark's. What does not is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tidemill.views import types as t
from tidemill.views.plan import BySpark, Column, Plan, Scan, Table
from tidemill.views.refusal import ViewError, refuse
from tidemill.views.sql.planner import embedded
from tidemill.views.sql.tree import Named, NotEmbedded, Other, Tree, short, tree_of

EMBEDDED, SPARK = "embedded", "spark"
_STEPS = frozenset(
    f"plans.logical.{name}"
    for name in (
        *("Project", "Filter", "Join", "Aggregate", "Window", "Sort", "GlobalLimit", "LocalLimit", "Offset", "Union", "Distinct"),
        *("SubqueryAlias", "WithCTE", "CTERelationDef", "CTERelationRef", "Intersect", "Except", "Generate", "Expand", "Pivot", "Unpivot"),
        *("OneRowRelation", "LocalRelation", "Range", "LateralJoin", "ResolvedHint", "Deduplicate"),
    )
)
_RELATION = "org.apache.spark.sql.execution.datasources.LogicalRelation"
_OF_NOW = frozenset(
    (
        *("CurrentDate", "CurrentTime", "CurrentTimestamp", "CurrentTimestampWithTZ", "Now", "LocalTimestamp", "CurrentTimeZone"),
        *("CurrentUser", "CurrentDatabase", "CurrentCatalog", "CurrentPath", "SparkVersion", "InputFileName", "InputFileBlockStart"),
        *("InputFileBlockLength", "VariableReference", "CallMethodViaReflection", "TryReflect"),
    )
)
_BY_ORDER = frozenset(
    (
        *("CollectList", "CollectSet", "First", "Last", "AnyValue", "ListAgg", "MinBy", "MaxBy", "Mode", "HistogramNumeric"),
        *("ApproximatePercentile", "ApproxTopK"),
    )
)
"""What Spark does not call nondeterministic, though the order of rows, or of equal ones, decides."""


def chosen(analysed: Tree, output: list[Tree], rewritten: Tree, tables: Sequence[Table]) -> tuple[str, str]:
    """Return the engine for a query, and why it is not the embedded one. Raises ViewRefused for what no engine has."""
    _check_names(output)
    _check(analysed, tables)
    try:
        embedded(rewritten, tables)
    except NotEmbedded as error:
        for one in output:
            if t.of_spark(one.type) is None or one.type == "void":
                raise refuse(f"column {one.fields['name']} is {one.type}, which a view cannot have", "Use CAST.") from None
        return SPARK, str(error)
    return EMBEDDED, ""


def document_of(output: Any, rewritten: Any, engine: str, why: str, version: str) -> str:
    """Return what is kept of an analysis. `output`, `rewritten`: as Spark's writer gives them."""
    return json.dumps({"spark": version, "engine": engine, "why": why, "output": output, "plan": rewritten})


def plan_of(document: str, tables: Sequence[Table], sql: str, database: str) -> Plan:
    """Return the plan of a query out of what is kept of its analysis. Raises ViewError if this version does not compute it any more."""
    given = json.loads(document)
    if given["engine"] == SPARK:
        return _by_spark([tree_of(one) for one in given["output"]], tables, sql, database, given["why"])
    try:
        return embedded(tree_of(given["plan"]), tables)
    except NotEmbedded as error:
        raise ViewError(
            f"the embedded engine of this version does not have {error}", hint="Drop the view and create it again: Spark computes it then."
        ) from None


def _by_spark(output: list[Tree], tables: Sequence[Table], sql: str, database: str, why: str) -> Plan:
    scans = tuple(
        Scan(i, one.columns, one.keys or None, table=i, alias=one.name, chosen=tuple(range(len(one.columns))))
        for i, one in enumerate(tables)
    )
    columns = []
    for one in output:
        kind = t.of_spark(one.type)
        assert kind is not None, "it was checked"
        columns.append(Column(str(one.fields["name"]), kind))
    root = BySpark(len(scans), tuple(columns), None, scans=scans, sql=sql, database=database, why=why)
    return Plan(tuple(tables), root)


def _check(analysed: Tree, tables: Sequence[Table]) -> None:
    """All rows come from the tables, and the same rows of them always give the same result."""
    ours = {f"spark_catalog.{one.database}.{one.name}".lower() for one in tables}
    for one in analysed.every():
        name = short(one)
        if one.kind == _RELATION:
            given = one.fields.get("catalogTable")
            if not isinstance(given, Named) or given.name.lower() not in ours:
                raise refuse("a view reads tables of the log, and nothing else")
        elif one.step and one.kind not in _STEPS:
            raise refuse(f"views do not have {name}: it is not a SELECT over tables, or gives other rows each time")
        if name in _BY_ORDER or (not one.deterministic and all(inner.deterministic for inner in one.every() if inner is not one)):
            raise refuse(f"{name} gives another value each time, or one that depends on the order of rows")
        if name in _OF_NOW or name.endswith(("UDF", "UDAF")):
            raise refuse(f"{name} depends on when or where the query runs")


_AUTO = "__autoGeneratedAlias"


def _check_names(output: list[Tree]) -> None:
    """Columns that are computed have a name; names are different."""
    names = [str(one.fields["name"]).lower() for one in output]
    for one, name in zip(output, names, strict=True):
        metadata = one.fields.get("metadata")
        if isinstance(metadata, Other) and _AUTO in metadata.text:
            raise refuse(f"{one.fields['name']} has no name", "Give it one with AS.")
        if names.count(name) > 1:
            raise refuse(f"two columns are called {name}", "Name one of them otherwise, with AS.")
        if name in ("_row_key", "_weight", "__tidemill_op"):
            raise refuse(f"no column of a view is called {name}")
