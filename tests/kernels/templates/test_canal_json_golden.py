"""Kernel and reference give TiCDC's Canal-JSON for every row of the golden vectors, in all variants."""

from __future__ import annotations

import functools

import pytest

from tests.support.golden import ticdc
from tests.support.golden.text_rows import encode_all, golden_records
from tests.support.thorough import one_in
from tidemill.kernels.canal_json import CanalJsonRowEncoder
from tidemill.protocols.options import EncodingOptions, LargeMessage, LargeMessageOption, MessageFormat

OPTIONS = {
    "default": EncodingOptions(MessageFormat.CANAL_JSON),
    "ext": EncodingOptions(MessageFormat.CANAL_JSON, enable_tidb_extension=True),
    "content-compatible": EncodingOptions(MessageFormat.CANAL_JSON, content_compatible=True),
    "delete-only-handle": EncodingOptions(MessageFormat.CANAL_JSON, delete_only_handle_key_columns=True),
    "only-updated": EncodingOptions(MessageFormat.CANAL_JSON, only_output_updated_columns=True),
    "handle-key-only": EncodingOptions(
        MessageFormat.CANAL_JSON,
        enable_tidb_extension=True,
        max_message_bytes=700,
        large_message=LargeMessage(LargeMessageOption.HANDLE_KEY_ONLY),
    ),
}


SLOW = {"only-updated": 35, "content-compatible": 60}
"""Updates of rows older than a column with a default: whether it changed is for the reference."""

NOW = 1_795_258_576_000
"""The wall clock. The golden messages were measured while it had this many digits; then it was set to 0."""


def without_clock(value: bytes | None) -> bytes | None:
    return None if value is None else value.replace(b',"ts":%d,' % NOW, b',"ts":0,', 1)


@functools.cache
def expected(config: str) -> dict[int, bytes]:
    """The value of the message of each row, by row id; `ts` is 0."""
    found = {}
    for line in ticdc.lines("canal_json"):
        if line["kind"] == "row" and line["config"] == config and "error" not in line:
            found[line["id"]] = line["value"].encode() if "value" in line else ticdc.raw(line["value_b64"]) or b""
    return found


@pytest.mark.slow
@pytest.mark.parametrize("config", OPTIONS)
def test_rows_are_ticdcs(config: str) -> None:
    want = expected(config)
    assert len(want) == {"default": 2010, "handle-key-only": 1148, "only-updated": 322, "delete-only-handle": 160}.get(config, 2005)
    programs, records = golden_records(want)
    encoder = CanalJsonRowEncoder(programs, OPTIONS[config], clock=lambda: NOW)
    messages = [m._replace(value=without_clock(m.value)) for m in encode_all(encoder, records)]
    assert all(m.key is None and m.rows == 1 for m in messages)
    wrong = [(i, m.value, value) for (i, value), m in zip(want.items(), messages, strict=True) if m.value != value]
    assert not wrong, wrong[:2]
    if config != "handle-key-only":
        assert encoder.slow_rows <= SLOW.get(config, 0)
        number = 1 if config == "default" else 4
        plain = [encoder.value_of(record, 0) for record in one_in(number, records)]  # the clock at 0
        assert plain == one_in(number, list(want.values()))
