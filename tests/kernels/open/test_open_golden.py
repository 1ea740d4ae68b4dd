"""Kernel and reference give TiCDC's bytes for every row of the golden vectors."""

from __future__ import annotations

import functools
from collections import defaultdict

import pytest

from tests.support.golden import ticdc
from tests.support.golden.open_options import encode, table_of
from tidemill.protocols.open.batch import batches
from tidemill.protocols.open.encode import framed
from tidemill.protocols.options import EncodingOptions


@functools.cache
def expected_messages() -> dict[int, tuple[bytes, bytes]]:
    """Key and value of the message of each row, by row id."""
    return {m["id"]: (ticdc.raw(m["key"]), ticdc.raw(m["value"])) for m in ticdc.lines("open") if m["kind"] == "row"}


@functools.cache
def reference(row_id: int) -> tuple[bytes, bytes]:
    """Key and value JSON of a row by the reference."""
    row = ticdc.rows()[row_id]
    return table_of(row, EncodingOptions()).row(row.record.key, row.record.value, row.record.old_value, row.record.commit_ts)


def test_reference_writes_ticdcs_bytes() -> None:
    expected = expected_messages()
    assert len(expected) == 2010
    assert not [(i, ticdc.rows()[i].case) for i, message in expected.items() if framed(*reference(i)) != message]


@pytest.mark.parametrize("batch", [1, 16])
def test_kernel_writes_ticdcs_bytes(batch: int) -> None:
    expected = expected_messages()
    messages, encoder = encode(expected, EncodingOptions(max_batch_size=batch))
    if batch == 1:
        assert not [i for i, got, want in zip(expected, messages, expected.values(), strict=True) if (got.key, got.value) != want]
    assert b"".join(m.key[8:] for m in messages) == b"".join(key[8:] for key, _ in expected.values())
    assert b"".join(m.value or b"" for m in messages) == b"".join(value for _, value in expected.values())
    assert all(m.rows <= batch for m in messages)
    assert encoder.slow_rows == 0


@pytest.mark.parametrize("batch", list(ticdc.lines("batches")), ids=lambda b: f"{b['case']}-{b['max-batch-size']}-{b['max-message-bytes']}")
def test_batches_are_ticdcs(batch: dict) -> None:
    refused = {error["id"] for error in batch.get("errors") or ()}
    row_ids = [i for i in batch["ids"] if i not in refused]
    options = EncodingOptions(max_batch_size=batch["max-batch-size"], max_message_bytes=batch["max-message-bytes"])
    want = [(ticdc.raw(m["key"]), ticdc.raw(m["value"]), m["rows"]) for m in batch["messages"]]
    assert batches(map(reference, row_ids), options) == want
    messages, _ = encode(row_ids, options)
    assert [(m.key, m.value, m.rows) for m in messages] == want


def test_split_halves_are_deletes_and_inserts() -> None:
    kinds = defaultdict(set)
    for row_id, (_, value) in expected_messages().items():
        kinds[ticdc.rows()[row_id].split].add(value[9:12])
    assert kinds["delete"] == {b'"d"'}
    assert kinds["insert"] == {b'"u"'}
