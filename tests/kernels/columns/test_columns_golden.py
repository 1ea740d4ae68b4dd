"""The columns of TiCDC's golden rows: what its mounter made of each change, as typed values, against the kernel."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

from tests.support.golden.rows import RowEvent, row_events
from tidemill.kernels.columns import ColumnBuilder, ColumnProgram
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord, row_array
from tidemill.tidb.columns.values import Unfit, typed_value
from tidemill.tidb.schema.codes import MySQLType


def test_golden_rows_column_by_column() -> None:
    seen: Counter[MySQLType | int] = Counter()
    programs: dict[Any, tuple[ColumnProgram, ColumnBuilder]] = {}
    for event in row_events():
        key = event.table.id, event.table.update_ts, event.table.version
        if key not in programs:
            program = ColumnProgram(TableProgram(event.schema, event.table.name, event.table))
            programs[key] = program, ColumnBuilder([program])
        check(event, *programs[key], seen)
    assert len(seen) >= 24, seen
    assert sum(builder.slow_rows for _, builder in programs.values()) == 0


def check(event: RowEvent, program: ColumnProgram, builder: ColumnBuilder, seen: Counter[MySQLType | int]) -> None:
    for stored, cells in event.images:
        assert stored is not None
        rows, _keep = row_array([RawRecord(event.raw.key, stored, None, 1, 2, 0)])
        (built,) = builder.build(rows)
        named = {column.name: i for i, column in enumerate(program.plain.columns)}
        for name, cell in zip(event.names, cells, strict=True):
            at = named[name]
            column, kind = program.plain.columns[at], program.types[at]
            if column.tp == MySQLType.TIMESTAMP and event.zone != "UTC":
                continue  # its text is in that zone
            try:
                want: Any = typed_value(column, kind, cell)
            except Unfit:
                want = None
            if isinstance(want, bytes) and pa.types.is_string(kind.arrow):
                want = want.decode("utf-8", "replace")
            got = built.columns[at].to_pylist()[0]
            assert got == (pa.array([want], kind.arrow).to_pylist()[0] if isinstance(want, list) else want), (event.case, name)
            seen[column.tp] += 1
