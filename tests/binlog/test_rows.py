"""Row bytes of binlogs."""

from __future__ import annotations

import pytest

from tests.support.binlog.sample_rows import EXAMPLE_A, TEST, name, number, whole
from tidemill.binlog.messages import MutationType, TableMutation
from tidemill.binlog.rows import RowChange, read_changes
from tidemill.errors import MalformedRow
from tidemill.tidb.datums import Datum, DatumFlag, encode_datum


def shown(change: RowChange) -> tuple[str, object, object]:
    def plain(image: object) -> object:
        return None if image is None else tuple(datum.value for _, datum in sorted(image.items()))  # type: ignore[attr-defined]

    return change.kind.name, plain(change.old), plain(change.new)


INSERT, UPDATE, DELETE = MutationType.INSERT, MutationType.UPDATE, MutationType.DELETE_ROW


def test_example_a_one_transaction_with_rows_inserted_updated_deleted_and_inserted_again() -> None:
    assert [shown(change) for change in read_changes(TEST, EXAMPLE_A)] == [
        ("INSERT", None, (1, b"a")),
        ("INSERT", None, (2, b"b")),
        ("UPDATE", (1, b"a"), (1, b"c")),
        ("UPDATE", (2, b"b"), (2, b"d")),
        ("DELETE_ROW", (2, b"d"), None),
        ("INSERT", None, (2, b"c")),
    ]


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        (INSERT, b""),
        (INSERT, number(1) + number(2)),
        (INSERT, number(1) + encode_datum(Datum(DatumFlag.COMPACT_BYTES, b"x")) + number(1)),
        (INSERT, number(1) + name(b"abc")[:-1]),
        (UPDATE, whole(1, b"a")),
        (UPDATE, whole(1, b"a") * 3),
        (DELETE, b"\xff\xff"),
    ],
)
def test_broken_rows_are_told_with_their_table(kind: MutationType, row: bytes) -> None:
    lists = {INSERT: "inserted", UPDATE: "updated", DELETE: "deleted"}
    mutation = TableMutation(50, **{lists[kind]: (row,)}, sequence=(kind,))  # type: ignore[arg-type]
    with pytest.raises(MalformedRow, match="table test"):
        list(read_changes(TEST, mutation))
