"""Columns picked out of rows, against the reader of whole rows."""

from __future__ import annotations

import random
from datetime import timedelta, timezone

import pytest

from tests.support.rows.random_rows import broken, random_record, random_table
from tidemill.errors import MalformedBytes
from tidemill.tidb.rows.pick import ColumnPicker
from tidemill.tidb.rows.reader import RowReader

ZONE = timezone(timedelta(hours=5))


@pytest.mark.parametrize("seed", range(40))
def test_picked_cells_are_those_of_the_reader(seed: int) -> None:
    rng = random.Random(seed)
    table = random_table(rng)
    columns = sorted(rng.sample(table.output_columns, min(3, len(table.output_columns))), key=lambda c: c.offset)
    picker, reader = ColumnPicker(table, columns, ZONE), RowReader(table, ZONE, columns)
    picked = 0
    for _ in range(40):
        record = random_record(rng, table)
        for image in (record.value, record.old_value):
            if image:
                found = picker.pick(record.key, image)
                expected = reader.read(record.key, image)
                assert picker.read(record.key, image) == expected
                if found is not None:
                    picked += 1
                    assert picker.cells(found) == expected
                    assert hash(found) == hash(picker.pick(record.key, image))
    assert picked or table.is_common_handle or max(c.id for c in table.columns) > 255


@pytest.mark.parametrize("seed", range(40))
def test_broken_rows_are_handed_back_or_read_alike(seed: int) -> None:
    """Damage outside of the picked columns need not be found here. It is found when the row is encoded."""
    rng = random.Random(1000 + seed)
    table = random_table(rng)
    columns = list(table.output_columns[:2])
    picker, reader = ColumnPicker(table, columns, ZONE), RowReader(table, ZONE, columns)
    for _ in range(60):
        record = broken(rng, random_record(rng, table))
        if not record.value:
            continue
        try:
            expected = reader.read(record.key, record.value)
        except MalformedBytes:
            continue
        found = picker.pick(record.key, record.value)
        assert found is None or picker.cells(found) == expected
