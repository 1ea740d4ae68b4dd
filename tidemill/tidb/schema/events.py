"""`DdlEvent`, a DDL as it is delivered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemill.tidb.ddltext import was_printed
from tidemill.tidb.schema.tracking.statements import Statement
from tidemill.tidb.schema.tracking.versions import TableVersion

Name = tuple[str, str]
"""Schema and table."""


@dataclass(frozen=True, slots=True)
class DdlEvent:
    """One DDL as it is delivered. `ts` is its place: it follows rows <= ts and precedes rows > ts. `done_ts` is the end of its job.

    `done_ts` is 0 while the job still runs: a DDL is sent as soon as its effect is public.
    """

    ts: int
    done_ts: int
    job_id: int
    schema_version: int
    seq: int  # order among the events of one job
    type: int  # TiDB's action code
    schema: str
    table: str  # empty for a DDL of a schema
    pre_schema: str  # names before; empty where there was no table before, or for DDLs that do not need them
    pre_table: str
    table_id: int  # logical
    query: str  # the text that is sent
    raw_query: str  # as the user wrote it
    reprinted: bool  # False: query is the user's own text because it could not be re-printed
    before: TableVersion | None = None
    after: TableVersion | None = None
    other: TableVersion | None = None  # EXCHANGE PARTITION: the plain table before it; drops: the table's last description
    start_ts: int = 0  # the job's, when the statement was queued
    bdr_role: str = ""  # of the cluster then; empty as well if another change data capture ran it
    statement: Statement | None = None  # what `query` was printed from
    names: Mapping[Name, Name] = field(default_factory=dict)  # of the statement (no table: a schema), where the catalogue has other letters

    @property
    def source(self) -> Statement:
        """What `query` was printed from; without that `query` itself."""
        return self.statement or Statement(self.query, self.raw_query, 0, "", "", was_printed=was_printed(self.query))
