"""What Spark makes of a query: `analysed`. This module does IO; the document that it returns is kept with the view.

Spark analyses the query (names, types, coercions, functions). Then rules of Spark's own optimizer, those that state the same query in fewer
kinds of steps, turn subqueries into joins, set operations into joins and groups, and functions that are defined by others into these.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemill.views.plan import Table
from tidemill.views.refusal import refuse
from tidemill.views.spark.session import ViewSession, told
from tidemill.views.sql.choice import chosen, document_of
from tidemill.views.sql.tree import Tree, tree_of

Find = Callable[[str, str], Table | None]

_CATALYST = "org.apache.spark.sql.catalyst."
_RULES = (
    *("analysis.EliminateSubqueryAliases", "analysis.EliminateView"),
    "optimizer.InlineCTE",
    *("analysis.EliminateSubqueryAliases", "analysis.EliminateView"),
    "optimizer.ReplaceExpressions",
    *("optimizer.PullupCorrelatedPredicates", "optimizer.RewritePredicateSubquery", "optimizer.RewriteCorrelatedScalarSubquery"),
    *("optimizer.ReplaceIntersectWithSemiJoin", "optimizer.ReplaceExceptWithAntiJoin"),
    *("optimizer.RewriteExceptAll", "optimizer.RewriteIntersectAll"),
    *("optimizer.ReplaceDistinctWithAggregate", "optimizer.ReplaceDeduplicateWithAggregate"),
    "optimizer.ConstantFolding",
)
_PLAN_TEXT = Path(__file__).parent / "PlanText.java"


@dataclass(frozen=True, slots=True)
class Analysis:
    """`document`: what is kept of the analysis. `tables`: those that the query names, with all of their columns."""

    document: str
    tables: tuple[Table, ...]


def analysed(session: ViewSession, sql: str, find: Find, database: str = "") -> Analysis:
    """Analyse a query over the tables that `find` knows. Raises ViewRefused with what Spark says of it."""
    with told():
        state = session.java.sessionState()
        parsed = state.sqlParser().parsePlan(sql)
        writer = _writer(session)
        tables = _named(tree_of(json.loads(writer.apply(parsed))), find, database)
        if database:
            session.use(database)
        for one in tables:
            session.add(one)
        skip = _module(session, "org.apache.spark.sql.execution.CommandExecutionMode").SKIP()
        plan = state.executePlan(parsed, skip).analyzed()
        before, output = json.loads(writer.apply(plan)), json.loads(writer.apply(plan.output()))
        after = json.loads(writer.apply(_rewritten(session, plan)))
        version = str(session.java.version())
    engine, why = chosen(tree_of(before), [tree_of(one) for one in output], tree_of(after), tables)
    return Analysis(document_of(output, after, engine, why, version), tables)


def _named(parsed: Tree, find: Find, database: str) -> tuple[Table, ...]:
    """The tables that a query names, but for names of its own WITH."""
    found: dict[tuple[str, str], Table] = {}
    own = {one.lower() for one in _with(parsed)}
    for relation in parsed.every():
        if relation.kind != "analysis.UnresolvedRelation":
            continue
        parts = [str(one) for one in relation.many("multipartIdentifier")]
        if len(parts) == 1 and parts[0].lower() in own:
            continue
        if len(parts) == 1 and not database:
            raise refuse(f"table {parts[0]} has no database", "Write DATABASE.TABLE, or give --database.")
        if len(parts) > 2:
            raise refuse(f"{'.'.join(parts)}: a table is named DATABASE.TABLE")
        name = (parts[0], parts[1]) if len(parts) == 2 else (database, parts[0])
        table = find(*name)
        if table is None:
            raise refuse(f"the log has no table {'.'.join(name)}")
        found[table.database.lower(), table.name.lower()] = table
    if not found:
        raise refuse("the query reads no table")
    return tuple(found.values())


def _with(parsed: Tree) -> Iterator[str]:
    for one in parsed.every():
        if one.kind == "plans.logical.UnresolvedWith":
            for pair in one.many("cteRelations"):
                assert isinstance(pair, Tree)
                yield str(pair.fields["_1"])


def _rewritten(session: ViewSession, plan: Any) -> Any:
    for name in _RULES:
        rule = getattr(session.jvm, _CATALYST + name)(True, False) if name.endswith("InlineCTE") else _module(session, _CATALYST + name)
        plan = rule.apply(plan)
    return plan


def _module(session: ViewSession, name: str) -> Any:
    """An object of Scala."""
    return getattr(getattr(session.jvm, f"{name}$"), "MODULE$")


def _writer(session: ViewSession) -> Any:
    """What writes plans: compiled once in each Java, by the compiler that Spark has with it."""
    jvm = session.jvm
    made = _writers.get(id(jvm))
    if made is None:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(session.java.getClass().getClassLoader())
        compiler.cook(_PLAN_TEXT.read_text(encoding="utf-8"))
        made = jvm, compiler.getClassLoader().loadClass("PlanText").newInstance()
        _writers[id(jvm)] = made
    return made[1]


_writers: dict[int, tuple[Any, Any]] = {}
"""With the Java itself, so that its id is not given to another."""
