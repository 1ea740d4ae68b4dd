"""Data that flows between the packages: the Arrow schema of raw changes. DDL events: `tidemill.tidb.schema.events`."""

from __future__ import annotations

import enum

import pyarrow as pa


class Op(enum.IntEnum):
    """The operation of a raw change."""

    PUT = 1
    DELETE = 2


RAW_CHANGE = pa.schema(
    [
        pa.field("table_id", pa.int64(), nullable=False),  # physical
        pa.field("op", pa.uint8(), nullable=False),  # Op
        pa.field("start_ts", pa.uint64(), nullable=False),
        pa.field("commit_ts", pa.uint64(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),  # raw record key
        pa.field("value", pa.binary()),  # null: a delete
        pa.field("old_value", pa.binary()),  # null: the key did not exist
    ]
)
"""The schema of the change log's rows: one committed change of one key."""

META_PAIR = pa.schema([pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)])
"""Meta key-values ('m' keys) as of one ts."""
