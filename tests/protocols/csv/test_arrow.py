"""Lines of TiCDC's CSV as Arrow."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from tidemill.errors import MalformedMessage
from tidemill.protocols.csv.arrow import decode_array
from tidemill.protocols.options import BinaryEncoding, CsvOptions

SCHEMA = pa.struct([("id", pa.int64()), ("price", pa.decimal128(12, 2)), ("b", pa.binary()), ("name", pa.string())])


def test_lines() -> None:
    data = b'"I","t","d",1,1.5,"AQI=","M\xc3\xbchle"\r\n"U","t","d",2,\\N,\\N,"say ""x"""\r\n"D","t","d",3,2,"","z"\r\n'
    first, second, third = decode_array(pa.array([data]), SCHEMA, CsvOptions()).to_pylist()[0]
    assert (first["op"], first["schema"], first["table"], first["ts"]) == ("insert", "d", "t", None)
    assert first["after"] == {"id": 1, "price": Decimal("1.50"), "b": b"\1\2", "name": "Mühle"}
    assert (second["op"], second["after"]["price"], second["after"]["name"]) == ("update", None, 'say "x"')
    assert (third["op"], third["after"], third["before"]["id"], third["before"]["b"]) == ("delete", None, 3, b"")


def test_options() -> None:
    options = CsvOptions(include_commit_ts=True, output_old_value=True, binary_encoding=BinaryEncoding.HEX, delimiter=";")
    data = b'"D";"t";"d";9;true;1;1;"0102";"a"\r\n'
    (line,) = decode_array(pa.array([data, None]), SCHEMA, options).to_pylist()[0]
    assert (line["ts"], line["updated"], line["before"]["b"]) == (9, True, b"\1\2")


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b'"I","t","d",1\r\n', "message 0 of the batch.*it has 1 columns, the schema has 4"),
        (b'"I","t","d",1,1,"?","a"\r\n', "b: expected base64"),
        (b'"I","t","d","x",1,"","a"\r\n', "columns.id"),
        (b'"I', "message 0"),
    ],
)
def test_faults(data: bytes, fault: str) -> None:
    with pytest.raises(MalformedMessage, match=fault):
        decode_array(pa.array([data]), SCHEMA, CsvOptions())
