"""What readers of a view see: its columns, and by which columns rows are told apart. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import pyarrow as pa

from tidemill.views import types as t
from tidemill.views.plan import Plan

ROW_KEY = "_row_key"
"""The first column of a view whose own columns do not tell its rows apart, or may be NULL there."""
WEIGHT = "_weight"
"""A column of changes: 1 for a row that comes, -1 for one that goes. An update is both."""

_KEY_TYPES = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_string, pa.types.is_binary, pa.types.is_date, pa.types.is_boolean)


class Keyed(enum.Enum):
    """How rows of a view are told apart."""

    COLUMNS = "columns"  # by columns that are never NULL
    HASH = "hash"  # by the hash of columns that may be NULL
    COPIES = "copies"  # by the hash of the whole row and the number of the copy: equal rows are several rows


@dataclass(frozen=True)
class Shape:
    """The columns of a view as it is read. `keys`: names of those that tell rows apart. `hashed`: positions in the plan's columns."""

    keyed: Keyed
    schema: pa.Schema
    keys: tuple[str, ...]
    hashed: tuple[int, ...]


def shape_of(plan: Plan) -> Shape:
    """Return what readers of a view see."""
    columns, key = plan.root.columns, plan.root.key
    fields = [pa.field(one.name, one.type, one.nullable) for one in columns]
    if key and all(not columns[i].nullable and any(test(columns[i].type) for test in _KEY_TYPES) for i in key):
        return Shape(Keyed.COLUMNS, pa.schema(fields), tuple(columns[i].name for i in key), ())
    if key == ():  # one row, of a GROUP BY without columns
        return Shape(Keyed.HASH, pa.schema([pa.field(ROW_KEY, t.STRING, False), *fields]), (ROW_KEY,), ())
    keyed = Keyed.COPIES if key is None else Keyed.HASH
    hashed = tuple(range(len(columns))) if key is None else key
    return Shape(keyed, pa.schema([pa.field(ROW_KEY, t.STRING, False), *fields]), (ROW_KEY,), hashed)
