"""Rows of binlogs as changes of TiKV's records: the same values as the readers of rows find, and one change for each key."""

from __future__ import annotations

from datetime import UTC

import numpy as np
import pytest

from tests.support.binlog.recorded_rows import recorded_tables
from tests.support.binlog.sample_rows import EXAMPLE_A, TEST, name, number, whole
from tidemill.binlog import records
from tidemill.binlog.messages import MutationType, TableMutation
from tidemill.binlog.records import Record, joined, read_records
from tidemill.binlog.rows import Cells, Image, read_changes
from tidemill.errors import MalformedRow
from tidemill.kernels.open.encoder import OpenRowEncoder
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord, row_array
from tidemill.protocols.open.encode import OpenTable, framed
from tidemill.protocols.options import EncodingOptions
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows.cells import Cell
from tidemill.tidb.rows.reader import RowReader
from tidemill.tidb.schema.model import TableInfo

INSERT, UPDATE, DELETE = MutationType.INSERT, MutationType.UPDATE, MutationType.DELETE_ROW
KEY = {n: record_key(50, n) for n in range(9)}


def test_example_a_of_one_transaction_leaves_what_tikv_keeps() -> None:
    assert read_records(TEST, EXAMPLE_A) == [Record(KEY[1], None, whole(1, b"c")), Record(KEY[2], None, name(b"c"))]


def test_a_key_that_changes_is_a_delete_and_an_insert() -> None:
    mutation = TableMutation(50, updated=(whole(3, b"a") + whole(4, b"a"),), sequence=(UPDATE,))
    assert read_records(TEST, mutation) == [Record(KEY[3], whole(3, b"a"), None), Record(KEY[4], None, whole(4, b"a"))]


def test_a_row_that_comes_and_goes_in_one_transaction_is_left_out() -> None:
    mutation = TableMutation(50, inserted=(number(1) + name(b"a"),), deleted=(whole(1, b"a"),), sequence=(INSERT, DELETE))
    assert read_records(TEST, mutation) == []


def test_a_row_that_is_replaced_is_an_update() -> None:
    mutation = TableMutation(50, inserted=(number(1) + name(b"b"),), deleted=(whole(1, b"a"),), sequence=(DELETE, INSERT))
    assert read_records(TEST, mutation) == [Record(KEY[1], whole(1, b"a"), name(b"b"))]


def test_steps_are_joined_by_key() -> None:
    steps = [Record(b"b", None, b"1"), Record(b"a", b"0", None), Record(b"b", b"1", b"2"), Record(b"a", None, b"3")]
    assert joined(steps) == [Record(b"a", b"0", b"3"), Record(b"b", None, b"2")]


@pytest.mark.parametrize(
    ("inserted", "updated", "deleted"),
    [
        ((number(1) + name(b"a") + name(b"b"),), (), ()),
        ((number(1) + b"\x02",), (), ()),
        ((b"\x06",), (), ()),
        ((), (whole(1, b"a"),), ()),
        ((), (whole(1, b"a") + name(b"b"),), ()),
        ((), (whole(1, b"a") * 3,), ()),
        ((), (), (name(b"a"),)),
        ((), (), (whole(1, b"a") * 2,)),
        ((), (), (b"\x08\x02\x09",)),
    ],
)
def test_rows_that_are_broken_name_their_table(inserted: tuple[bytes, ...], updated: tuple[bytes, ...], deleted: tuple[bytes, ...]) -> None:
    sequence = (INSERT,) * len(inserted) + (UPDATE,) * len(updated) + (DELETE,) * len(deleted)
    with pytest.raises(MalformedRow, match=r"table test \(id 50\)"):
        read_records(TEST, TableMutation(50, inserted, updated, deleted, sequence))


def _cells(info: TableInfo, image: Image | None) -> tuple[Cell, ...] | None:
    cells = Cells(info, UTC)
    return None if image is None else tuple(cells.of(column, image) for column in info.output_columns)


def test_recorded_rows_have_the_values_that_the_drainer_reads() -> None:
    rows = 0
    for version, mutation in recorded_tables():
        info = version.info
        reader = RowReader(info, UTC)

        def read(key: bytes, data: bytes | None, reader: RowReader = reader) -> tuple[Cell, ...] | None:
            return None if data is None else reader.read(key, data)

        steps = list(records._steps(info, mutation))
        for change in read_changes(info, mutation):
            old, new = _cells(info, change.old), _cells(info, change.new)
            step = steps.pop(0)
            found = read(step.key, step.old), read(step.key, step.new)
            if old is not None and new is not None and step.new is None:
                step = steps.pop(0)
                found = found[0], read(step.key, step.new)
            assert found == (old, new), (info.name, change)
            rows += 1
        assert not steps
    assert rows > 300


def test_the_kernels_of_rows_read_them_without_help() -> None:
    """Open Protocol as the kernel writes it is the reference's, for all recorded rows; none is left to the reference."""
    programs, tables, found = [], [], []
    for place, (version, mutation) in enumerate(recorded_tables()):
        programs.append(TableProgram(version.schema, version.table, version.info, UTC))
        tables.append(OpenTable(version.schema, version.table, version.info, UTC, EncodingOptions()))
        found += [RawRecord(one.key, one.new, one.old, 4, 5, place) for one in read_records(version.info, mutation)]
    rows, _keep = row_array(found)
    encoder = OpenRowEncoder(programs, EncodingOptions(max_batch_size=1))
    messages = encoder.encode(rows, np.array([0, len(rows)], np.int32)).to_list()
    wrong = []
    for record, message in zip(found, messages, strict=True):
        key, value = framed(*tables[record.table].row(record.key, record.value, record.old_value, record.commit_ts))
        if (message.key, message.value) != (key, value):
            wrong.append((tables[record.table], message.value, value))
    assert wrong == []
    assert len(found) > 300
    assert encoder.slow_rows == 0
