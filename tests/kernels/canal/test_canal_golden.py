"""Kernel and reference give TiCDC's canal entries and packets for every row of the golden vectors, in all variants."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.support.golden import ticdc
from tests.support.golden.text_rows import encode_all, golden_records
from tidemill.kernels.canal import CanalRowEncoder
from tidemill.protocols.canal.encode import packet
from tidemill.protocols.canal.packets import Messages, parse_packet
from tidemill.protocols.options import EncodingOptions, MessageFormat

OPTIONS = {
    "default": EncodingOptions(MessageFormat.CANAL),
    "delete-only-handle": EncodingOptions(MessageFormat.CANAL, delete_only_handle_key_columns=True),
}


@functools.cache
def rows(config: str) -> dict[int, dict[str, Any]]:
    """Golden lines of rows by row id."""
    return {line["id"]: line for line in ticdc.lines("canal") if line["kind"] == "row" and line["config"] == config}


@pytest.mark.parametrize(("config", "count"), [("default", 2010), ("delete-only-handle", 160)])
def test_rows_are_ticdcs(config: str, count: int) -> None:
    want = [ticdc.raw(line["entry"]) for line in rows(config).values()]
    assert len(want) == count
    programs, records = golden_records(rows(config))
    encoder = CanalRowEncoder(programs, OPTIONS[config])
    assert [encoder.entry_of(record) for record in records] == want
    messages = encode_all(encoder, records)
    entries: list[bytes] = []
    for message in messages:
        body = parse_packet(message.value or b"")
        assert isinstance(body, Messages)
        assert (message.key, message.rows, body.batch_id) == (None, len(body.entries), 0)
        entries += body.entries
    assert entries == want
    assert encoder.slow_rows == 0


def test_packets_of_one_row_are_ticdcs() -> None:
    with_packet = {i: line for i, line in rows("default").items() if "packet" in line}
    assert len(with_packet) == 2005
    programs, records = golden_records(with_packet)
    encoder = CanalRowEncoder(programs)
    for record, line in zip(records, with_packet.values(), strict=True):
        (message,) = encode_all(encoder, [record])
        assert message.value == ticdc.raw(line["packet"]) == packet([ticdc.raw(line["entry"]) or b""])


def test_packets_of_many_rows_are_ticdcs() -> None:
    batches = list(ticdc.lines("canal_batches"))
    assert [len(batch["ids"]) for batch in batches] == [41, 120, 116]
    for batch in batches:
        programs, records = golden_records(batch["ids"])
        (message,) = encode_all(CanalRowEncoder(programs), records)
        (want,) = batch["messages"]
        assert (message.value, message.rows) == (ticdc.raw(want["value"]), want["rows"])
