"""Kernel and reference write the same Debezium messages for every row of the golden vectors. Nobody recorded TiCDC's for them."""

from __future__ import annotations

import pytest

from tests.support.golden import ticdc
from tests.support.golden.text_rows import encode_all, golden_records
from tests.support.thorough import one_in
from tidemill.kernels.debezium import DebeziumRowEncoder
from tidemill.protocols.common.compression import expand
from tidemill.protocols.options import Compression, DebeziumOptions, EncodingOptions, LargeMessage, MessageFormat

OPTIONS = {
    "default": EncodingOptions(MessageFormat.DEBEZIUM),
    "payload only": EncodingOptions(MessageFormat.DEBEZIUM, debezium=DebeziumOptions(disable_schema=True, include_start_ts=True)),
    "extension": EncodingOptions(
        MessageFormat.DEBEZIUM, enable_tidb_extension=True, debezium=DebeziumOptions(output_old_value=False, cluster_id="a-b")
    ),
    "compressed": EncodingOptions(MessageFormat.DEBEZIUM, large_message=LargeMessage(compression=Compression.SNAPPY)),
}
NOW = 1_795_258_576_000
SLOW = 16
"""Rows with one of three decimals of more than 19 digits that lie near the middle between two doubles."""


@pytest.mark.parametrize("config", OPTIONS)
def test_kernel_and_reference_agree(config: str) -> None:
    programs, records = golden_records(ticdc.rows())
    encoder = DebeziumRowEncoder(programs, OPTIONS[config], clock=lambda: NOW)
    messages = encode_all(encoder, records)
    whole = expand if config == "compressed" else bytes
    got = [(whole(m.key or b""), whole(m.value or b"")) for m in messages]
    number = 1 if config == "default" else 4
    want = [(encoder.key_of(record), encoder.value_of(record, NOW)) for record in one_in(number, records)]
    wrong = [(found, wanted) for found, wanted in zip(one_in(number, got), want, strict=True) if found != wanted]
    assert not wrong, wrong[:1]
    assert len(got) > 2000
    assert encoder.slow_rows <= SLOW
