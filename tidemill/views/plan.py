"""The plan of a view: a tree of frozen nodes over the tables that are captured. Pure.

Each node says its columns. In the engine they are called c0, c1, … An expression is DuckDB's SQL in which `ref(3)` stands for the
input's column 3; the inputs of a join are counted through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

Key = tuple[int, ...] | None
"""Columns whose values no two rows share; None: there may be equal rows."""

_REF = re.compile("\x01(\\d+)\x02")


def ref(number: int) -> str:
    """Return what stands for a column of the input."""
    return f"\x01{number}\x02"


def with_columns(sql: str, name: Callable[[int], str]) -> str:
    """Return an expression with the names of the columns filled in."""
    return _REF.sub(lambda found: name(int(found[1])), sql)


def columns_of(sql: str) -> set[int]:
    """Return the columns that an expression has."""
    return {int(found[1]) for found in _REF.finditer(sql)}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a node. `nullable`: it may hold NULL."""

    name: str
    type: pa.DataType
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Expr:
    """An expression. `digits`: of an integer literal. `text`: as the user wrote it."""

    sql: str
    type: pa.DataType
    nullable: bool = True
    digits: int = 0
    literal: str | None = None  # the text of a string literal


@dataclass(frozen=True, slots=True)
class Table:
    """A captured table as a view reads it. `columns`: those that are read; `keys`: positions of its handle key, none without one."""

    database: str
    name: str
    columns: tuple[Column, ...]
    keys: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"


@dataclass(frozen=True, slots=True)
class Node:
    """A step of a plan. `number`: unlike that of any other node of the plan."""

    number: int
    columns: tuple[Column, ...]
    key: Key

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes below."""
        return ()


@dataclass(frozen=True, slots=True)
class Scan(Node):
    """Rows of a table. `table`: its number in the plan's tables."""

    table: int = 0
    alias: str = ""
    chosen: tuple[int, ...] = ()  # its columns, as positions in the table


@dataclass(frozen=True, slots=True)
class Filter(Node):
    """Rows for which a condition is true."""

    input: Node = field(kw_only=True)
    condition: str = field(kw_only=True)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class Project(Node):
    """New columns out of those of a row."""

    input: Node = field(kw_only=True)
    values: tuple[str, ...] = field(kw_only=True)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class Join(Node):
    """An inner or cross join of any number of inputs."""

    sides: tuple[Node, ...] = field(kw_only=True)
    conditions: tuple[str, ...] = field(kw_only=True)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.sides


@dataclass(frozen=True, slots=True)
class OtherJoin(Node):
    """LEFT, FULL, SEMI or ANTI join. `left_keys` = `right_keys` is part of the condition; without keys all is computed again."""

    kind: str = field(kw_only=True)
    left: Node = field(kw_only=True)
    right: Node = field(kw_only=True)
    condition: str = field(kw_only=True)
    left_keys: tuple[str, ...] = field(kw_only=True)
    right_keys: tuple[str, ...] = field(kw_only=True)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class Union(Node):
    """UNION ALL."""

    sides: tuple[Node, ...] = field(kw_only=True)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.sides


@dataclass(frozen=True, slots=True)
class Aggregation:
    """One aggregate: sum, count, avg, min, max, bool_and, bool_or. `argument`: a column of the input; None: count(*)."""

    function: str
    argument: int | None
    distinct: bool
    type: pa.DataType
    of: pa.DataType

    @property
    def is_sum(self) -> bool:
        """Whether it can be kept by adding and subtracting what changed."""
        from tidemill.views.types import is_exact

        return not self.distinct and (self.function == "count" or (self.function in ("sum", "avg") and is_exact(self.of)))


@dataclass(frozen=True, slots=True)
class Aggregate(Node):
    """GROUP BY. The first `keys` columns of the input are the group's; without any, there is one row in any case.

    The output has the group's columns, then the aggregates. Without aggregates it is DISTINCT."""

    input: Node = field(kw_only=True)
    keys: int = field(kw_only=True)
    aggregates: tuple[Aggregation, ...] = field(kw_only=True)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def adds(self) -> bool:
        """Whether all aggregates are kept by adding and subtracting."""
        return all(one.is_sum for one in self.aggregates)


@dataclass(frozen=True, slots=True)
class Recomputed(Node):
    """What is computed again out of its input: window functions, for each partition that changed (`keys`); ORDER BY with LIMIT as a whole.

    `sql`: the query over a table `input` of rows. `what`: for people."""

    input: Node = field(kw_only=True)
    keys: tuple[str, ...] = field(kw_only=True)
    sql: str = field(kw_only=True)
    what: str = field(kw_only=True)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class BySpark(Node):
    """What Spark computes again out of all rows of the tables: the whole query. `why`: what the embedded engine lacks."""

    scans: tuple[Node, ...] = field(kw_only=True)
    sql: str = field(kw_only=True)
    database: str = field(kw_only=True)
    why: str = field(kw_only=True)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.scans


@dataclass(frozen=True, slots=True)
class Plan:
    """A view's plan."""

    tables: tuple[Table, ...]
    root: Node
    notes: tuple[str, ...] = ()


def walk(node: Node) -> Iterator[Node]:
    """Yield the nodes of a tree, inputs first."""
    for one in node.inputs:
        yield from walk(one)
    yield node
