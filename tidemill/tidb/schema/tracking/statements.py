"""The statement of a DDL event: the user's text, or a text made from the job, printed as TiDB's parser prints it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidemill.tidb.ddltext import TICDC, DdlSyntaxError, Dialect, FoundNames, Names, canonical_ddl
from tidemill.tidb.ddltext.synthesized import drop_table, drop_view, exchange_partition, rename_table, split_statements
from tidemill.tidb.names import folded
from tidemill.tidb.schema.job import DdlJob


@dataclass(frozen=True, slots=True)
class Statement:
    """The statement of a DDL event before printing: `source` will be printed, `raw` is what the user wrote."""

    source: str
    raw: str
    sql_mode: int
    charset: str
    collate: str
    fault: str = ""  # why no source could be made from the job; `source` is then the user's text, which says more than this event
    was_printed: bool = False  # `source` itself is a text that TiDB printed

    def printed(self, names: Names | None = None, dialect: Dialect = TICDC) -> str:
        """Return the text as TiDB prints it, or with other names and in another dialect. Raises DdlSyntaxError."""
        if self.fault:
            raise DdlSyntaxError(self.fault, 0)
        return canonical_ddl(self.source, self.sql_mode, self.charset, self.collate, names, dialect, printed=self.was_printed)


def written(job: DdlJob) -> Statement:
    """Return the user's own statement."""
    return Statement(job.query, job.query, job.sql_mode, job.charset, job.collate)


def _made(job: DdlJob, source: str) -> Statement:
    return Statement(source, job.query, job.sql_mode, job.charset, job.collate)


def _not_made(job: DdlJob, fault: str) -> Statement:
    return Statement(job.query, job.query, job.sql_mode, job.charset, job.collate, fault)


def dropped_table(job: DdlJob, schema: str, table: str) -> Statement:
    """Return the DROP TABLE of one job. A statement about several tables has a job for each."""
    return _made(job, drop_table((schema, table)))


def dropped_view(job: DdlJob, schema: str, view: str) -> Statement:
    """Return the DROP VIEW of one job."""
    return _made(job, drop_view((schema, view)))


def renamed_table(job: DdlJob, old: tuple[str, str], new: tuple[str, str]) -> Statement:
    """Return the RENAME TABLE of one pair in `RENAME TABLE a TO b, c TO d`."""
    return _made(job, rename_table(old, new))


def moved_table(job: DdlJob, old: tuple[str, str], new: tuple[str, str]) -> Statement:
    """Return the rename of a table into another schema: the user's text, or another where it leaves the old schema to the session.

    Readers run a DDL in the schema of its event, which is the new one.
    """
    found = FoundNames()
    try:
        written(job).printed(found)
    except DdlSyntaxError:
        return written(job)
    return renamed_table(job, old, new) if found.first is not None and not found.first[0] else written(job)


class _NamedSources(Names):
    """Writes the schemas of tables that a job reads, where a statement leaves them to the session. Its first name is the new table's."""

    def __init__(self, job: DdlJob) -> None:
        self._schemas = {folded(table): schema for schema, table in job.sources if folded(schema) != folded(job.schema_name)}
        self.changed, self._first = False, True

    def table(self, name: tuple[str, str]) -> tuple[str, str]:
        """Return the name with its schema."""
        schema = "" if name[0] or self._first else self._schemas.get(folded(name[1]), "")
        self.changed, self._first = self.changed or bool(schema), False
        return schema or name[0], name[1]


def created_table(job: DdlJob) -> Statement:
    """Return CREATE TABLE: the user's text, completed where it is LIKE a table of the session's schema, which is not the new table's."""
    names = _NamedSources(job)
    try:
        text = written(job).printed(names)
    except DdlSyntaxError:
        return written(job)
    return replace(_made(job, text), was_printed=True) if names.changed else written(job)


def exchanged_partition(job: DdlJob, partitioned: tuple[str, str], plain: tuple[str, str]) -> Statement:
    """Return EXCHANGE PARTITION with both tables qualified."""
    try:
        return _made(job, exchange_partition(job.query, partitioned, plain, job.sql_mode))
    except DdlSyntaxError as error:
        return _not_made(job, str(error))


def created_tables(job: DdlJob, count: int) -> list[Statement]:
    """Return the statements of a job that creates several tables, one for each."""
    try:
        pieces = split_statements(job.query)
    except DdlSyntaxError as error:
        return [_not_made(job, str(error))] * count
    if len(pieces) != count:
        return [_not_made(job, f"{len(pieces)} statements for {count} tables")] * count
    return [_made(job, piece) for piece in pieces]
