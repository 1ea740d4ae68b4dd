"""Rows in a form in which those of a view, of a target and of another engine can be compared."""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from typing import Any

import pyarrow as pa


def rows_of(found: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of a view, for comparing."""
    names = [name for name in found.column_names if name != "_row_key"]
    return comparable([tuple(row[name] for name in names) for row in found.to_pylist()])


def comparable(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows in an order of their own, whose numbers do not say of which type they are."""
    return sorted((tuple(map(_comparable, row)) for row in rows), key=repr)


def _comparable(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        value = value.normalize()
        return f"{value + 0:f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        return float(f"{value:.11g}") + 0.0
    return value
