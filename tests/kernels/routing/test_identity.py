"""Key changes and hashes: the kernels against TiCDC's splits and dispatch keys."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from tests.support.golden import ticdc
from tidemill.kernels.routing.identity import KeyHash, unique_change
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord, row_array
from tidemill.protocols.common.celltext import any_changed, hash_cells
from tidemill.tidb.schema.model import ColumnInfo


class Tables:
    """Programs by table version and zone, numbered as they come."""

    def __init__(self) -> None:
        self.programs: list[TableProgram] = []
        self.index: dict[object, int] = {}

    def of(self, row: ticdc.Row, *more: object) -> int:
        at = (row.version.info.id, row.version.version, row.zone, *more)
        if at not in self.index:
            self.index[at] = len(self.programs)
            version = row.version
            self.programs.append(TableProgram(version.schema, version.table, version.info, ticdc.zone_of(row.zone)))
        return self.index[at]


def test_splits_are_ticdcs() -> None:
    tables = Tables()
    records, expected = [], []
    for row in ticdc.rows().values():
        change = ticdc.changes()[row.expected["seq"]]
        value, old = ticdc.raw(change.get("value")), ticdc.raw(change.get("old_value"))
        records.append(RawRecord(row.record.key, value, old, 0, 0, tables.of(row)))
        expected.append(row.split != "none")
    rows, _keep = row_array(records)
    unique = unique_change(tables.programs)
    assert unique.changed(rows).tolist() == expected
    assert sum(expected) > 20
    assert unique.slow_rows <= 16  # images on both sides of an added column
    assert [unique.changed_plain(record) for record in records] == expected


def test_hashes_are_ticdcs() -> None:
    """`key` of the rules index-value and columns is the hash before modulo."""
    tables = Tables()
    records, expected, columns = [], [], []
    for line in ticdc.lines("dispatch"):
        row = ticdc.rows()[line["id"]]
        for rule, result in line["rules"].items():
            names = _columns(row, rule)
            if names is None or "error" in result:
                continue
            index = tables.of(row, rule)
            if index == len(columns):
                columns.append(names)
            records.append(row.record._replace(table=index))
            expected.append(int(result["key"]))
    rows, _keep = row_array(records)
    hashes = KeyHash(tables.programs, columns)
    assert hashes.hash(rows).tolist() == expected
    assert len(expected) > 3000
    assert [hashes.hash_plain(record) for record in records] == expected


def _columns(row: ticdc.Row, rule: str) -> tuple[str, ...] | None:
    """The columns that a rule hashes; None where TiCDC takes another one than the rule says (see docs of dispatch)."""
    info = row.version.info
    kind, _, names = rule.partition(":")
    if kind == "index-value" and not names:
        return tuple(info.columns_by_id[i].name for i in info.handle_key_ids)
    if kind != "columns" or any(c.is_virtual for c in info.columns):
        return None
    known = {c.name.lower(): c.name for c in info.output_columns}
    wanted = [name.lower() for name in names.split(",")]
    return tuple(known[name] for name in wanted) if all(name in known for name in wanted) else None


def test_hash_without_columns_is_the_tables() -> None:
    row = ticdc.rows()[0]
    program = TableProgram(row.version.schema, row.version.table, row.version.info)
    rows, _keep = row_array([row.record])
    by_kind = defaultdict(int)
    for line in ticdc.lines("dispatch"):
        if line["id"] == 0:
            by_kind.update({rule: result["partitions"][15] for rule, result in line["rules"].items()})
    assert KeyHash([program], [()]).hash(rows)[0] % 16 == by_kind["table"]
    assert KeyHash([program]).hash(rows)[0] % 16 == by_kind["index-value"]


def test_unknown_column_is_refused() -> None:
    row = ticdc.rows()[0]
    program = TableProgram(row.version.schema, row.version.table, row.version.info)
    with pytest.raises(KeyError):
        KeyHash([program], [("nothing",)])


def test_null_is_not_the_text_null() -> None:
    column = next(iter(ticdc.rows().values())).version.info.columns[0]
    assert any_changed([(column, None, b"null")])
    assert not any_changed([(column, None, None)])


def test_equal_parts_cancel_out() -> None:
    column: ColumnInfo = next(iter(ticdc.rows().values())).version.info.columns[0]
    assert hash_cells(7, [(column, 1), (column, 1)]) == 7


def test_empty_chunk() -> None:
    rows, _keep = row_array([])
    assert unique_change([]).changed(rows).tolist() == []
    assert KeyHash([]).hash(rows).dtype == np.uint32
