"""Kernel and reference give TiCDC's CSV lines for every row of the golden vectors."""

from __future__ import annotations

import functools

import pytest

from tests.support.golden import ticdc
from tests.support.golden.text_rows import encode_all, golden_records, outcome
from tidemill.errors import MalformedRow
from tidemill.kernels.csv import CsvRowEncoder
from tidemill.protocols.options import BinaryEncoding, CsvOptions, EncodingOptions, MessageFormat

FULL = CsvOptions(
    delimiter="|",
    quote="'",
    include_commit_ts=True,
    binary_encoding=BinaryEncoding.HEX,
    output_old_value=True,
    output_handle_key=True,
)
OPTIONS = {"default": EncodingOptions(MessageFormat.CSV), "full": EncodingOptions(MessageFormat.CSV, csv=FULL)}


@functools.cache
def lines(config: str) -> dict[int, bytes | None]:
    """The lines of each row, by row id; None: refused."""
    rows = (line for line in ticdc.lines("csv") if line["kind"] == "row" and line["config"] == config)
    return {line["id"]: ticdc.raw(line.get("value")) for line in rows}


@pytest.mark.parametrize("config", OPTIONS)
def test_rows_are_ticdcs(config: str) -> None:
    want = {i: value for i, value in lines(config).items() if value is not None}
    assert len(want) == {"default": 2004, "full": 1148}[config]
    programs, records = golden_records(want)
    encoder = CsvRowEncoder(programs, OPTIONS[config])
    messages = encode_all(encoder, records)
    wrong = [(i, m.value, value) for (i, value), m in zip(want.items(), messages, strict=True) if m.value != value]
    assert not wrong, wrong[:3]
    assert encoder.slow_rows == 0
    plain = [encoder.value_of(record, 0) for record in records]
    assert plain == list(want.values())


@pytest.mark.parametrize("config", OPTIONS)
def test_rows_that_ticdc_refuses(config: str) -> None:
    """An ENUM value without an element has no name."""
    refused = [i for i, value in lines(config).items() if value is None]
    programs, records = golden_records(refused)
    (found,) = [outcome(lambda: encode_all(CsvRowEncoder(programs, OPTIONS[config]), records), MalformedRow)]
    assert isinstance(found, MalformedRow)
    assert f"table pub.enums, key {records[0].key.hex()}" in found.message
    assert "enum index 0 is not an element" in found.message
