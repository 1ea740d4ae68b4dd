"""`DdlEvent`, a DDL as it is delivered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.tracking.versions import TableVersion

if TYPE_CHECKING:
    from tidemill.tidb.schema.tracking.statements import Statement

Name = tuple[str, str]
"""Schema and table."""


class RenameStep(NamedTuple):
    """A pair of a RENAME TABLE of several tables. `place`: among the pairs of the statement."""

    place: int
    old: Name
    new: Name


@dataclass(frozen=True, slots=True)
class DdlEvent:
    """One DDL as it is delivered. `ts` is its place: it follows rows <= ts and precedes rows > ts. `done_ts` is the end of its job.

    `done_ts` is 0 while the job still runs: a DDL is sent as soon as its effect is public.

    A RENAME TABLE of several tables is one event of type RENAME_TABLE for each table that is delivered, from its first name to its last.
    Each of them has all of them in `group`, in an order in which each new name is free but for rings (`a TO b`, `b TO a`): a sink that
    keeps tables applies the whole group at its first event (`leads_group`), and skips the others.
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
    steps: tuple[RenameStep, ...] = ()  # of a RENAME TABLE of several tables, those of this table, if they can be sent one by one
    group: tuple[DdlEvent, ...] = ()  # the renames of one statement, this one among them, each without a group; empty: stands alone

    @property
    def source(self) -> Statement:
        """What `query` was printed from; without that `query` itself."""
        from tidemill.tidb.ddltext import was_printed  # settings know events, and need no DDL parser
        from tidemill.tidb.schema.tracking.statements import Statement

        return self.statement or Statement(self.query, self.raw_query, 0, "", "", was_printed=was_printed(self.query))

    @property
    def leads_group(self) -> bool:
        """Whether this is the first event of its group."""
        return bool(self.group) and self.group[0].seq == self.seq


def grouped(events: Iterable[DdlEvent]) -> list[DdlEvent]:
    """Return the events with the renames of one statement as groups, in their order. A rename that is left alone has no group."""
    found: list[DdlEvent] = []
    for _, some in groupby(events, lambda event: (event.ts, event.job_id, event.type)):
        members = tuple(sorted(some, key=lambda event: event.seq))
        is_group = members[0].type == Action.RENAME_TABLE and len(members) > 1
        found += [replace(event, group=members) for event in members] if is_group else members
    return found
