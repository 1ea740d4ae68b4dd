"""Kernel and reference give TiCDC's bytes for every row of the golden vectors."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import pytest

from tests.support import ticdc
from tidemill.kernels.encode import OpenRowEncoder, TableProgram
from tidemill.kernels.encode.rows import row_array
from tidemill.protocols.messages import Message
from tidemill.protocols.open.batch import batches
from tidemill.protocols.open.encode import OpenTable, framed
from tidemill.protocols.options import EncodingOptions


@functools.cache
def expected_messages() -> dict[int, tuple[bytes, bytes]]:
    """Key and value of the message of each row, by row id."""
    return {m["id"]: (ticdc.raw(m["key"]), ticdc.raw(m["value"])) for m in ticdc.lines("open") if m["kind"] == "row"}


@functools.cache
def reference(row_id: int) -> tuple[bytes, bytes]:
    """Key and value JSON of a row by the reference."""
    row = ticdc.rows()[row_id]
    table = open_table(row.version.info.id, row.version.version, row.zone)
    return table.row(row.record.key, row.record.value, row.record.old_value, row.record.commit_ts)


@functools.cache
def open_table(table_id: int, version: int, zone: str) -> OpenTable:
    found = ticdc.versions()[table_id, version]
    return OpenTable(found.schema, found.table, found.info, ticdc.zone_of(zone))


def encode(row_ids: Iterable[int], options: EncodingOptions) -> tuple[list[Message], OpenRowEncoder]:
    """Messages of these rows by the kernel, in one call; each zone's tables are programs of their own."""
    programs: list[TableProgram] = []
    index: dict[object, int] = {}
    records = []
    for row_id in row_ids:
        row = ticdc.rows()[row_id]
        at = (row.version.info.id, row.version.version, row.zone)
        if at not in index:
            index[at] = len(programs)
            programs.append(TableProgram(row.version.schema, row.version.table, row.version.info, ticdc.zone_of(row.zone)))
        records.append(row.record._replace(table=index[at]))
    rows, _keep = row_array(records)
    encoder = OpenRowEncoder(programs, options)
    return encoder.encode(rows, np.array([0, len(rows)], np.int32)).to_list(), encoder


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
