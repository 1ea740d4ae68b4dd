"""Comparing changes."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill.testing import assert_changes_equal

ONE: dict[str, Any] = {"_change_type": "insert", "_commit_ts": 5, "id": 1, "tags": [1, 2]}
TWO: dict[str, Any] = {"_change_type": "delete", "_commit_ts": 7, "id": 2, "tags": None}


class Frame:
    """As much of a DataFrame as is used."""

    class Row(dict[str, Any]):
        def asDict(self, recursive: bool) -> dict[str, Any]:
            assert recursive
            return dict(self)

    def collect(self) -> list[Frame.Row]:
        return [Frame.Row(TWO), Frame.Row(ONE)]


def test_columns_that_nobody_names_do_not_count() -> None:
    assert_changes_equal([ONE, TWO], [{"id": 2}, {"id": 1}])
    assert_changes_equal(Frame(), [{"id": 1, "tags": [1, 2]}, {"id": 2, "tags": None}], ordered=True)
    assert_changes_equal([], [])


def test_what_differs_is_told() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_changes_equal([ONE, TWO], [{"id": 1}, {"id": 1}])
    assert str(caught.value).splitlines() == [
        "the changes are not those expected",
        "  missing: {'id': 1}",
        "  not expected: {'id': 2}",
    ]
    with pytest.raises(AssertionError, match="2 changes, 1 expected"):
        assert_changes_equal([ONE, ONE], [{"id": 1}])


def test_another_order_is_told_where_it_counts() -> None:
    with pytest.raises(AssertionError, match=r"another order: number 0 is \{'id': 1\}, expected \{'id': 2\}"):
        assert_changes_equal([TWO, ONE], [{"id": 2}, {"id": 1}], ordered=True)


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(AssertionError, match="have no column idd; they have _change_type, _commit_ts, id, tags"):
        assert_changes_equal([ONE], [{"idd": 1}])
