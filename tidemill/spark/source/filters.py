"""Filters that Spark hands to the source: bounds of `_commit_ts` and `_commit_timestamp`, and the choice of images, databases and tables.

A filter is taken over as a whole or left to Spark. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from tidemill.spark.source.frame import HEADS
from tidemill.tidb.columns.forms import ALL_IMAGES, IMAGES
from tidemill.tso import LOGICAL_BITS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BOUNDS = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


@dataclass(frozen=True, slots=True)
class Pushed:
    """What is left of the rows: those with from_ts < commit_ts <= to_ts (None: no bound), of these images, databases and tables."""

    from_ts: int | None = None
    to_ts: int | None = None
    images: int = ALL_IMAGES
    databases: frozenset[str] | None = None
    tables: frozenset[str] | None = None

    def above(self, ts: int) -> Pushed:
        return replace(self, from_ts=ts if self.from_ts is None else max(ts, self.from_ts))

    def up_to(self, ts: int) -> Pushed:
        return replace(self, to_ts=ts if self.to_ts is None else min(ts, self.to_ts))


class Pushing:
    """The `pushFilters` of a reader that can also do without. Spark ends a query whose reader has one of its own where filters are not
    pushed down (`spark.sql.python.filterPushdown.enabled`), which is its default; it knows the readers that have none by `__func__`."""

    def __init__(self, push: Callable[[list[Filter]], Iterable[Filter]]) -> None:
        self._push = push
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._push(filters)


def push(filters: Iterable[Filter], pushed: Pushed, *, typed: bool) -> tuple[Pushed, list[Filter]]:
    """Take over what can be. Returns it, and the filters that are left to Spark. `typed`: rows are single images."""
    left = []
    for one in filters:
        taken = _taken(one, pushed, typed=typed)
        if taken is None:
            left.append(one)
        else:
            pushed = taken
    return pushed, left


def _taken(one: Filter, pushed: Pushed, *, typed: bool) -> Pushed | None:
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    name = attribute[0] if len(attribute) == 1 else ""
    if isinstance(one, IsNotNull) and name in HEADS:
        return pushed  # they never are null
    value: Any = getattr(one, "value", None)
    if name in ("_commit_ts", "_commit_version") and isinstance(one, _BOUNDS) and isinstance(value, int):
        return _bounded(one, value, value, pushed)
    if name == "_commit_timestamp" and isinstance(one, _BOUNDS) and isinstance(value, datetime):
        return _of_moment(one, value, pushed)
    values = _values(one, value)
    if values is None:
        return None
    if name == "_change_type" and typed:
        images = sum(1 << i for i, image in enumerate(IMAGES) if image in values)
        return replace(pushed, images=pushed.images & images)
    if name == "_database":
        return replace(pushed, databases=values if pushed.databases is None else pushed.databases & values)
    if name == "_table":
        return replace(pushed, tables=values if pushed.tables is None else pushed.tables & values)
    return None


def _values(one: Filter, value: Any) -> frozenset[str] | None:
    if isinstance(one, EqualTo) and isinstance(value, str):
        return frozenset({value})
    if isinstance(one, In) and isinstance(value, tuple | list) and all(isinstance(v, str) for v in value):
        return frozenset(value)
    return None


def _of_moment(one: Filter, value: datetime, pushed: Pushed) -> Pushed:
    """Timestamps have whole milliseconds: those of one are first … last."""
    moment = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    micro = (moment - _EPOCH) // (moment.resolution)
    first = (micro // 1000) << LOGICAL_BITS
    if micro % 1000:  # between two of them
        if isinstance(one, EqualTo):
            return pushed.up_to(0)
        first = (micro // 1000 + 1) << LOGICAL_BITS
        return pushed.above(first - 1) if isinstance(one, GreaterThan | GreaterThanOrEqual) else pushed.up_to(first - 1)
    return _bounded(one, first, first | (1 << LOGICAL_BITS) - 1, pushed)


def _bounded(one: Filter, first: int, last: int, pushed: Pushed) -> Pushed:
    """The bounds of a filter whose value stands for the timestamps first … last."""
    match one:
        case GreaterThan():
            return pushed.above(last)
        case GreaterThanOrEqual():
            return pushed.above(first - 1)
        case LessThan():
            return pushed.up_to(first - 1)
        case LessThanOrEqual():
            return pushed.up_to(last)
    return pushed.above(first - 1).up_to(last)
