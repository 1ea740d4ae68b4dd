"""`mode` of the column functions: what a message does that cannot be read."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.errors import MalformedMessage
from tidemill.kernels.decode.canal_columns import decode_array as canal
from tidemill.kernels.decode.open_columns import decode_array as open_protocol
from tidemill.protocols.canal_json.arrow import decode_array as canal_json
from tidemill.protocols.csv.arrow import decode_array as csv
from tidemill.protocols.open.encode import framed
from tidemill.protocols.options import CsvOptions
from tidemill.protocols.simple.arrow import decode_array as simple
from tidemill.spark.messages.column_functions import Mode, mode_of, read_as

BAD = -1


def decode(values: pa.Array, others: pa.Array) -> pa.Array:
    """Twice each number; BAD cannot be read."""
    if BAD in values.to_pylist():
        raise MalformedMessage("bad")
    assert len(others) == len(values)
    return pa.array([[value, value] for value in values.to_pylist()], pa.list_(pa.int64()))


@given(st.lists(st.sampled_from([BAD, 1, 2, 3]), max_size=20))
def test_only_what_cannot_be_read_is_null(numbers: list[int]) -> None:
    values = pa.array(numbers, pa.int64())
    read = read_as(decode, Mode.PERMISSIVE)(values, values)
    assert read.type == pa.list_(pa.int64())
    assert read.to_pylist() == [None if number == BAD else [number, number] for number in numbers]
    if BAD in numbers:
        with pytest.raises(MalformedMessage):
            read_as(decode, Mode.FAILFAST)(values, values)


def canal_json_row(price: str) -> bytes:
    row = {"database": "d", "table": "t", "pkNames": ["id"], "isDdl": False, "type": "INSERT", "es": 1, "sqlType": {}, "old": None}
    return json.dumps(row | {"mysqlType": {"price": "varchar(9)"}, "data": [{"price": price}]}).encode()


def open_row(price: str) -> tuple[bytes, bytes]:
    key = b'{"ts":400000000000000000,"scm":"app","tbl":"t","rid":7,"t":1}'
    return framed(key, b'{"u":{"price":{"t":15,"h":true,"f":64,"v":"%b"}}}' % price.encode())


PRICE = pa.struct([("price", pa.int32())])
OPEN = [open_row("1"), open_row("x"), (b"", b"nothing"), open_row("2")]
CASES: dict[str, tuple[Any, list[list[bytes]], list[bool]]] = {
    "open-protocol": (lambda k, v: open_protocol(k, v, PRICE), [[k for k, _ in OPEN], [v for _, v in OPEN]], [True, False, False, True]),
    "canal-json": (
        lambda v: canal_json(v, PRICE),
        [[canal_json_row("1"), canal_json_row("x"), b"{", canal_json_row("2")]],
        [True, False, False, True],
    ),
    "canal": (lambda v: canal(v, PRICE), [[b"\xff\xff\xff\xff"]], [False]),
    "simple": (lambda v: simple(v, PRICE), [[b"{", b'{"version":1,"type":"WATERMARK","commitTs":1,"buildTs":2}']], [False, True]),
    "csv": (lambda v: csv(v, PRICE, CsvOptions()), [[b'"I","t","d",1\r\n', b'"I","t","d","x"\r\n', b"?"]], [True, False, False]),
}


@pytest.mark.parametrize("protocol", CASES)
def test_each_protocol_passes_over_what_it_cannot_read(protocol: str) -> None:
    decoder, columns, readable = CASES[protocol]
    arrays = [pa.array(column, pa.binary()) for column in columns]
    read = read_as(decoder, Mode.PERMISSIVE)(*arrays)
    assert [one is not None for one in read.to_pylist()] == readable
    with pytest.raises(MalformedMessage):
        decoder(*arrays)


def test_modes_are_words_in_any_case() -> None:
    assert mode_of("permissive") is Mode.PERMISSIVE
    with pytest.raises(ValueError, match="mode: 'DROPMALFORMED' is neither FAILFAST nor PERMISSIVE"):
        mode_of("DROPMALFORMED")
