"""A DDL as it is delivered."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.tidb.schema.tracking.versions import TableVersion


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
