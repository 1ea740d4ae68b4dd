"""Events as lines for people."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.support.golden.ticdc import lines, raw
from tidemill import tso
from tidemill.consumer.shown import shown, value_text
from tidemill.protocols.open.codes import ColumnFlag, ColumnType, DdlType
from tidemill.protocols.open.decode import decode
from tidemill.protocols.open.events import Column, DdlMessage, ResolvedMessage, RowEvent, RowKind, Value

TS = tso.compose(1_700_000_000_123, 5)
AT = "2023-11-14 22:13:20.123"


def columns(values: Mapping[str, Value], key: str = "id") -> tuple[Column, ...]:
    return tuple(Column(name, ColumnType.VARCHAR, ColumnFlag(0), name == key, value) for name, value in values.items())


def row(kind: RowKind, before: Mapping[str, Value], after: Mapping[str, Value], claim_check: str | None = None) -> RowEvent:
    return RowEvent(TS, "shop", "orders", None, None, kind, columns(after), columns(before), False, claim_check)


def test_the_three_changes() -> None:
    old, new = {"note": b"new", "id": 7, "n": None}, {"note": b"new", "id": 7, "n": 5}
    assert str(shown(row(RowKind.INSERT, {}, new))) == f"{AT}  shop.orders  insert  id=7  note='new'  n=5"
    assert str(shown(row(RowKind.UPDATE, old, new))) == f"{AT}  shop.orders  update  id=7  n: NULL → 5"
    assert str(shown(row(RowKind.DELETE, old, {}))) == f"{AT}  shop.orders  delete  id=7  note='new'  n=NULL"


def test_an_update_with_less_in_it() -> None:
    assert shown(row(RowKind.UPDATE, {"id": 7}, {"id": 8})).text == "id=8  (was id=7)"
    assert shown(row(RowKind.UPDATE, {"id": 7}, {"id": 7, "n": 5})).text == "id=7  n=5"
    assert shown(row(RowKind.UPDATE, {}, {"id": 7}, "s3://b/f")).text == "id=7  (the row is in s3://b/f)"


def test_what_is_not_a_row() -> None:
    assert (
        str(shown(DdlMessage(TS, "shop", "", "CREATE DATABASE\n`shop`", DdlType.CREATE_SCHEMA)))
        == f"{AT}  shop  DDL  CREATE DATABASE `shop`"
    )
    assert str(shown(ResolvedMessage(TS))) == f"{AT}  resolved  {TS}"
    assert shown(ResolvedMessage((1 << 64) - 1)).what == "resolved", "also a ts beyond all dates"


@pytest.mark.parametrize(
    ("kind", "flags", "value", "text"),
    [
        (ColumnType.VARCHAR, 0, b"it's", "'it's'"),
        (ColumnType.VARCHAR, 0, b"\xff\x00", "0xff00"),
        (ColumnType.VARCHAR, ColumnFlag.BINARY, b"abc", "0x616263"),
        (ColumnType.VARCHAR, ColumnFlag.BINARY, b"", "''"),
        (ColumnType.VARCHAR, 0, b"a\x1b[31mb\tc", "'a\\x1b[31mb c'"),
        (ColumnType.DECIMAL, 0, "1.50", "1.50"),
        (ColumnType.JSON, 0, '{"a": 1}', '{"a": 1}'),
        (ColumnType.DOUBLE, 0, 1e300, "1e+300"),
        (ColumnType.INT, 0, None, "NULL"),
        (ColumnType.VARCHAR, 0, b"x" * 100, f"'{'x' * 80}… (100 characters)'"),
    ],
)
def test_values(kind: ColumnType, flags: int, value: Value, text: str) -> None:
    assert value_text(Column("c", kind, ColumnFlag(flags), False, value)) == text


def test_whole_values_on_wish() -> None:
    assert value_text(Column("c", ColumnType.VARCHAR, ColumnFlag(0), False, b"x" * 100), None) == f"'{'x' * 100}'"


def test_everything_that_ticdc_wrote_is_one_printable_line() -> None:
    count = 0
    for line in lines("open"):
        if line["kind"] == "row" and line["config"] == "default":
            for event in decode(raw(line["key"]) or b"", raw(line["value"])):
                text = str(shown(event))
                assert text.isprintable()
                count += 1
    assert count > 1000
