"""The Open Protocol's options as golden's configs have them, and rows encoded under them."""

from __future__ import annotations

import base64
import functools
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from tests.support.golden import ticdc
from tidemill.kernels.open.encoder import OpenRowEncoder
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import row_array
from tidemill.protocols.common.messages import Message
from tidemill.protocols.open.encode import OpenTable
from tidemill.protocols.open.fit import Change
from tidemill.protocols.options import Compression, EncodingOptions, LargeMessage, LargeMessageOption
from tidemill.sinks.claim_check import keeper

CONFIGS = {
    "delete-only-handle": EncodingOptions(delete_only_handle_key_columns=True),
    "only-updated": EncodingOptions(only_output_updated_columns=True),
    "no-old-value": EncodingOptions(output_old_value=False),
    "handle-key-only": EncodingOptions(max_message_bytes=600, large_message=LargeMessage(LargeMessageOption.HANDLE_KEY_ONLY)),
    "too-large": EncodingOptions(max_message_bytes=600),
    "lz4": EncodingOptions(large_message=LargeMessage(compression=Compression.LZ4)),
    "snappy": EncodingOptions(large_message=LargeMessage(compression=Compression.SNAPPY)),
}


@functools.cache
def golden() -> dict[str, list[dict[str, Any]]]:
    """Row lines of each config."""
    found = defaultdict(list)
    for line in ticdc.lines("open_options"):
        if line["kind"] == "row":
            found[line["config"]].append(line)
    return found


def message(line: dict[str, Any]) -> tuple[bytes, bytes]:
    """Key and value of a golden line."""
    return base64.b64decode(line["key"]), base64.b64decode(line["value"])


def change(row: ticdc.Row) -> Change:
    record = row.record
    return Change(record.key, record.value, record.old_value, record.start_ts, record.commit_ts)


@functools.cache
def open_table(table_id: int, version: int, zone: str, options: EncodingOptions) -> OpenTable:
    found = ticdc.versions()[table_id, version]
    return OpenTable(found.schema, found.table, found.info, ticdc.zone_of(zone), options)


def table_of(row: ticdc.Row, options: EncodingOptions) -> OpenTable:
    return open_table(row.version.info.id, row.version.version, row.zone, options)


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
    encoder = OpenRowEncoder(programs, options, keeper(options))
    return encoder.encode(rows, np.array([0, len(rows)], np.int32)).to_list(), encoder
