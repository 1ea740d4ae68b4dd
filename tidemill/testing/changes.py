"""`assert_changes_equal`: compares changes with those that a test expects. Pure, but for a DataFrame, whose rows are collected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

CHANGE = "_change_type"
COMMIT = "_commit_ts"

Row = Mapping[str, Any]


def assert_changes_equal(actual: Any, expected: Sequence[Row], *, ordered: bool = False) -> None:
    """Compare changes. Raises AssertionError with the rows that are missing and those that are too many.

    `actual`: a DataFrame of `format("tidemill")`, or rows as dicts, such as `Upstream.changes`. `expected`: dicts. The columns that any of
    them names are compared, others are left out; so `_commit_ts` and its like need not be known. Without `ordered`, rows may come in any
    order, as those of a DataFrame do; with it, they are sorted by `_commit_ts` first.
    """
    found = _rows(actual)
    columns = list(dict.fromkeys(name for row in expected for name in row))
    unknown = [name for name in columns if found and all(name not in row for row in found)]
    if unknown:
        raise AssertionError(f"the changes have no column {', '.join(unknown)}; they have {', '.join(found[0])}")
    if ordered:
        found.sort(key=lambda row: row.get(COMMIT, 0))
    ours, theirs = [_chosen(row, columns) for row in found], [_chosen(row, columns) for row in expected]
    missing, surplus = _without(theirs, ours), _without(ours, theirs)
    if missing or surplus:
        raise AssertionError("\n".join([_headline(len(ours), len(theirs)), *_told("missing", missing), *_told("not expected", surplus)]))
    if ordered and ours != theirs:
        at = next(i for i, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other)
        raise AssertionError(f"the changes come in another order: number {at} is {ours[at]}, expected {theirs[at]}")


def _rows(actual: Any) -> list[Row]:
    if hasattr(actual, "collect"):
        return [row.asDict(recursive=True) for row in actual.collect()]
    found: Iterable[Row] = actual
    return list(found)


def _chosen(row: Row, columns: Sequence[str]) -> dict[str, Any]:
    return {name: row[name] for name in columns if name in row}


def _without(rows: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that have no partner among the others. Values need not be hashable."""
    left = list(others)
    found = []
    for row in rows:
        if row in left:
            left.remove(row)
        else:
            found.append(row)
    return found


def _headline(ours: int, theirs: int) -> str:
    return f"{ours} changes, {theirs} expected" if ours != theirs else "the changes are not those expected"


def _told(what: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    return [f"  {what}: {row}" for row in rows]
