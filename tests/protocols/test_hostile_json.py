"""Well-formed JSON with numbers and text that no event holds: refused by all decoders, with place and field."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tidemill.consumer.tables.sqlite import MEMORY, SqliteTables
from tidemill.errors import MalformedMessage, SinkError
from tidemill.kernels.decode import open_columns
from tidemill.protocols.canal_json import arrow as canal
from tidemill.protocols.open import arrow as opened
from tidemill.protocols.open.codes import ColumnFlag, ColumnType
from tidemill.protocols.open.encode import framed
from tidemill.protocols.open.events import Column, RowEvent, RowKind

HEAD = {"ts": 5, "scm": "s", "tbl": "t", "t": 1}
BODY = {"u": {"a": {"t": 15, "f": 0, "v": "x"}}}
CANAL = {"database": "s", "table": "t", "isDdl": False, "type": "INSERT", "es": 1, "sqlType": {"a": 4}, "mysqlType": {"a": "json"},
         "data": [{"a": "1"}], "_tidb": {"commitTs": 5}}  # fmt: skip
WANTED = pa.struct([("a", pa.string())])


@pytest.mark.parametrize(
    ("head", "column", "field"),
    [
        ({"ts": 1 << 63}, {}, "ts"),
        ({"rid": 1 << 63}, {}, "rid"),
        ({"ptn": -(1 << 63) - 1}, {}, "ptn"),
        ({"scm": "\ud800"}, {}, "scm"),
        ({}, {"t": 1 << 31}, "u.a.t"),
        ({}, {"t": -1}, "u.a.t"),
        ({}, {"f": 1 << 40}, "u.a.f"),
        ({}, {"v": "a\udc80"}, "u.a.v"),
        ({}, {"t": 245, "v": '"\ud800"'}, "u.a.v"),
    ],
)
@pytest.mark.parametrize("schema", [None, WANTED])
def test_open(head: dict[str, Any], column: dict[str, Any], field: str, schema: pa.StructType | None) -> None:
    good = framed(json.dumps(HEAD).encode(), json.dumps(BODY).encode())
    bad = framed(json.dumps(HEAD | head).encode(), json.dumps({"u": {"a": BODY["u"]["a"] | column}}).encode())
    keys, values = (pa.array([good[i], bad[i]], pa.binary()) for i in (0, 1))
    with pytest.raises(MalformedMessage, match=rf"message 1 of the batch: message (key|value), byte \d+, {field}: .*\n?.*the sender's"):
        open_columns.decode_array(keys, values, schema)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"_tidb": {"commitTs": 1 << 63}}, "_tidb.commitTs"),
        ({"type": "TIDB_WATERMARK", "_tidb": {"watermarkTs": 1 << 63}}, "_tidb.watermarkTs"),
        ({"es": 1 << 63}, "es"),
        ({"sqlType": {"a": 1 << 40}}, "sqlType.a"),
        ({"database": "\ud800"}, "database"),
        ({"data": [{"a": "\udcff"}]}, "data.a"),
        ({"data": [{"\ud800": "x"}]}, r"data.\\ud800"),
    ],
)
@pytest.mark.parametrize("schema", [None, WANTED])
def test_canal_json(change: dict[str, Any], field: str, schema: pa.StructType | None) -> None:
    messages = pa.array([json.dumps(CANAL).encode(), json.dumps(CANAL | change).encode()], pa.binary())
    with pytest.raises(MalformedMessage, match=rf"message 1 of the batch: message value, byte \d+, {field}: .*\n?.*the sender's"):
        canal.decode_array(messages, schema)


def test_pairs_and_backslashes_are_text() -> None:
    for text in ("\U0001f600", "\\ud800"):
        message = json.dumps(CANAL | {"data": [{"a": text}]}).encode()
        assert canal.decode_array(pa.array([message]), WANTED).to_pylist()[0][0]["after"] == {"a": text}


def test_bytes_that_are_no_utf8_are_refused() -> None:
    message = json.dumps(CANAL).encode().replace(b'"s"', b'"\xff"')
    with pytest.raises(MalformedMessage, match=rf"byte {message.index(0xFF)}: it is not UTF-8"):
        canal.decode_array(pa.array([message]))


@pytest.mark.parametrize("body", [b'{"u":{}}', b'{"u":{"b":{"t":3,"f":0,"v":1}}}', b'{"u":{ },"p":{"a":{"t":15,"f":0,"v":"x"}}}'])
def test_an_image_without_columns_is_none(body: bytes) -> None:
    keys, values = (pa.array([part], pa.binary()) for part in framed(json.dumps(HEAD).encode(), body))
    found = open_columns.decode_array(keys, values, WANTED)
    assert found == opened.decode_plainly(keys, values, WANTED)
    assert (found.to_pylist()[0][0]["after"] is None) == (b'"b"' not in body)


def test_names_that_no_file_holds() -> None:
    column = Column("id\ud800", ColumnType.INT, ColumnFlag(0), True, 1)
    with pytest.raises(SinkError, match="surrogates not allowed"):
        SqliteTables(MEMORY).rows([RowEvent(5, "s", "t", None, None, RowKind.INSERT, (column,), (), False, None)])
