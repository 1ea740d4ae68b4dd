"""Kernel and reference give TiCDC's simple protocol for every row of the golden vectors."""

from __future__ import annotations

import json

from tests.support.golden import ticdc
from tests.support.golden.text_rows import encode_all, golden_records
from tidemill.kernels.simple import SimpleRowEncoder
from tidemill.protocols.options import EncodingOptions, MessageFormat, SimpleOptions

QUIET = EncodingOptions(MessageFormat.SIMPLE, simple=SimpleOptions(bootstrap_messages=0))


def test_rows_are_ticdcs() -> None:
    want = {line["id"]: line["value"] for line in ticdc.lines("simple") if line["kind"] == "row"}
    assert len(want) == 2005
    programs, records = golden_records(want)
    encoder = SimpleRowEncoder(programs, QUIET, clock=lambda: 0)
    messages = encode_all(encoder, records)
    wrong = [(m.value, value) for value, m in zip(want.values(), messages, strict=True) if json.loads(m.value or b"") != json.loads(value)]
    assert not wrong, wrong[:2]
    assert encoder.slow_rows == 0
    assert [m.value for m in messages] == [encoder.value_of(record, 0) for record in records]
