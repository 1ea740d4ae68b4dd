"""What flows between the rooms: the Arrow schema of raw changes, DDL events, resolved events."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from tidemill.tidb.schema.history import TableVersion


class Op(enum.IntEnum):
    """What a raw change did to its key."""

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
"""Rows of the change log: one committed change of one key."""

META_PAIR = pa.schema([pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)])
"""Meta key-values ('m' keys) as of one ts."""


@dataclass(frozen=True, slots=True)
class DdlEvent:
    """One DDL as it is delivered. `ts` is where it stands (rows <= ts, the DDL, rows > ts), `done_ts` where its job ended.

    `done_ts` is 0 while the job still runs: a DDL whose public effect is there is sent before its job is done.
    """

    ts: int
    done_ts: int
    job_id: int
    schema_version: int
    seq: int  # order among the events of one job
    type: int  # TiDB's action code
    schema: str
    table: str  # empty for a DDL of a schema
    pre_schema: str  # names before, empty where there was no table before or they did not matter
    pre_table: str
    table_id: int  # logical
    query: str  # as it is sent
    raw_query: str  # as the user wrote it
    reprinted: bool  # False: query is the user's own text because it could not be re-printed
    before: TableVersion | None = None
    after: TableVersion | None = None
    other: TableVersion | None = None  # of EXCHANGE PARTITION: the plain table before it; of a drop: the table as it was last described
    start_ts: int = 0  # of the job: when the statement was queued


@dataclass(frozen=True, slots=True)
class Resolved:
    """Nothing at or below `ts` will follow."""

    ts: int
