"""What a DDL does to a table's columns, as a table of cases; handles read from keys; the last change of each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.errors import SinkError
from tidemill.kernels.rows.views import RawRecord, row_array
from tidemill.sinks.lake.evolution import Step, converted, evolution
from tidemill.sinks.lake.net import last_of_each
from tidemill.sinks.lake.rows import handles
from tidemill.sinks.lake.shapes import LakeTable, field
from tidemill.tidb.codec import encode_int

I32, I64, TEXT = pa.int32(), pa.int64(), pa.string()
Column = tuple[int, str, pa.DataType, Any]
"""Id, name, type, what older rows have."""


def _fields(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([field(name, kind, number) for number, name, kind, _ in columns])


def _table(columns: Sequence[Column], *, history: bool = False) -> LakeTable:
    values = [pa.array([value], kind) for _, _, kind, value in columns]
    return LakeTable("s", "t", 1, pa.RecordBatch.from_arrays(values, schema=_fields(columns)), ("id",), history)


ID: Column = (1, "id", I32, None)
OLD: list[Column] = [ID, (2, "a", I32, None)]


@pytest.mark.parametrize(
    ("new", "step", "rows"),
    [
        (OLD, Step.NOTHING, [(1, 2)]),
        ([*OLD, (3, "b", I32, None)], Step.ADD, [(1, 2, None)]),
        ([*OLD, (3, "b", I32, 5)], Step.REWRITE, [(1, 2, 5)]),
        ([ID], Step.REWRITE, [(1,)]),
        ([ID, (2, "b", I32, None)], Step.REWRITE, [(1, 2)]),
        ([ID, (2, "a", I64, None)], Step.REWRITE, [(1, 2)]),
        ([ID, (7, "a", TEXT, None)], Step.REWRITE, [(1, "2")]),  # a type that TiDB changes by a new column of the name
        ([ID, (2, "b", I32, None), (3, "a", I32, 9)], Step.REWRITE, [(1, 2, 9)]),  # the old name is another column's now
        ([(2, "a", I32, None), ID], Step.NOTHING, [(2, 1)]),
        ([ID, (7, "a", I32, 9)], Step.REWRITE, [(1, 9)]),  # dropped, and another one of the name and type is there
        ([ID, (7, "a", TEXT, "x"), (2, "b", I32, None)], Step.REWRITE, [(1, "x", 2)]),
    ],
)
def test_each_change_of_columns(new: list[Column], step: Step, rows: list[tuple[Any, ...]]) -> None:
    found = evolution(_fields(OLD), _table(new))
    assert found.step is step
    batch = pa.RecordBatch.from_arrays([pa.array([1], I32), pa.array([2], I32)], schema=_fields(OLD))
    assert [tuple(row.values()) for row in converted(batch, found, _table(new)).to_pylist()] == rows


@pytest.mark.parametrize(
    ("origins", "rows"), [({7: 2}, [(1, "2")]), ({7: 5, 5: 2}, [(1, "2")]), ({7: 0}, [(1, "x")]), ({7: 5, 5: 0}, [(1, "x")])]
)
def test_a_copy_of_a_column_is_told_from_another_one_of_its_name(origins: dict[int, int], rows: list[tuple[Any, ...]]) -> None:
    new = replace(_table([ID, (7, "a", TEXT, "x")]), origins=tuple(origins.items()))
    batch = pa.RecordBatch.from_arrays([pa.array([1], I32), pa.array([2], I32)], schema=_fields(OLD))
    assert [tuple(row.values()) for row in converted(batch, evolution(_fields(OLD), new), new).to_pylist()] == rows


def test_columns_of_another_table_are_known_by_their_names() -> None:
    new = replace(_table([(1, "a", I32, None), (2, "id", I32, None)], history=True), by_name=True)
    assert evolution(_fields(OLD), new).sources == ("a", "id")


def test_a_dropped_column_of_a_change_table_makes_room_for_another_one_of_its_name() -> None:
    found = evolution(_fields(OLD), _table([ID, (3, "a", I32, None)], history=True))
    assert (found.step, found.target.names, found.sources) == (Step.REWRITE, ["id", "a", "a__2"], ("id", None, "a"))


def test_a_change_table_keeps_what_is_dropped() -> None:
    found = evolution(_fields(OLD), _table([ID, (3, "b", I32, None)], history=True))
    assert (found.step, found.target.names) == (Step.ADD, ["id", "b", "a"])


def test_a_value_without_the_new_type_is_named() -> None:
    new = _table([ID, (2, "a", I32, None)])
    old = pa.schema([field("id", I32, 1), field("a", TEXT, 2)])
    batch = pa.RecordBatch.from_arrays([pa.array([1], I32), pa.array(["x"])], schema=old)
    with pytest.raises(SinkError, match=r"s\.t: column a was string"):
        converted(batch, evolution(old, new), new)


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=20))
def test_handles_are_read_from_keys(ids: list[int]) -> None:
    records = [RawRecord(b"t" + encode_int(5) + b"_r" + encode_int(one), b"v", None, 1, 2, 0) for one in ids]
    rows, kept = row_array(records)
    assert handles(rows).tolist() == ids
    del kept


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab")), max_size=30))
def test_the_last_change_of_each_row(keys: list[tuple[int, str]]) -> None:
    rows = pa.table({"k": pa.array([k for k, _ in keys], I32), "l": pa.array([text for _, text in keys], TEXT), "n": np.arange(len(keys))})
    assert last_of_each(rows, ("k", "l"))["n"].to_pylist() == sorted({key: n for n, key in enumerate(keys)}.values())
