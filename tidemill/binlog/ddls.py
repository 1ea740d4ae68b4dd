"""Which DDL binlogs are delivered, and the text and names that they are delivered with."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.binlog.messages import SchemaState
from tidemill.tidb.ddltext import EXACT, DdlSyntaxError, FoundNames, RoutedNames, canonical_ddl, was_printed
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.job import DdlJob
from tidemill.tidb.schema.tracking.named import Known, catalogue_names

NOT_DELIVERED = frozenset(
    {
        Action.SET_TIFLASH_REPLICA,
        Action.UPDATE_TIFLASH_STATUS,
        Action.LOCK_TABLE,
        Action.UNLOCK_TABLE,
        Action.CACHE_TABLE,
        Action.NO_CACHE_TABLE,
        Action.ALTER_TABLE_ATTRIBUTES,
        Action.ALTER_PARTITION_ATTRIBUTES,
        Action.CREATE_PLACEMENT_POLICY,
        Action.ALTER_PLACEMENT_POLICY,
        Action.DROP_PLACEMENT_POLICY,
        Action.ALTER_PARTITION_PLACEMENT,
        Action.ALTER_SCHEMA_PLACEMENT,
        Action.ALTER_TABLE_PLACEMENT,
        Action.CREATE_RESOURCE_GROUP,
        Action.ALTER_RESOURCE_GROUP,
        Action.DROP_RESOURCE_GROUP,
    }
)
"""What only concerns the upstream cluster itself."""


@dataclass(frozen=True, slots=True)
class Ddl:
    """A DDL as it is delivered. `table` is empty where it concerns a database."""

    schema: str
    table: str
    query: str
    names_database: bool
    """The statement itself creates the database, which so cannot be used before."""
    for_database: str = ""
    """The statement for a database, see `database_text`; empty: `query`."""
    special: tuple[tuple[str, str], ...] = ()
    """Indexes of the table that not every database has, see `sinks.mysql.dialect`."""
    now: str = ""
    """What CURRENT_TIMESTAMP stands for, as SQL; empty: the time of the binlog."""


def has_no_effect(query: str, schema_state: int) -> bool:
    """Whether a DDL binlog can be left out without its job: the first of the two of DROP COLUMN, and refills of a sequence's cache."""
    return schema_state == SchemaState.DELETE_ONLY or query.lower().startswith("select setval")


def took_effect(job: DdlJob) -> bool:
    """Whether a job changed the schema. A job that failed may have been filed with no schema version, whatever its state."""
    return job.is_done and job.schema_version > 0


def is_delivered(job: DdlJob) -> bool:
    """Whether a job's DDL goes downstream: it was done, and concerns more than the upstream cluster itself."""
    return took_effect(job) and job.action not in NOT_DELIVERED


def ddl_of(job: DdlJob, query: str, schema: str, table: str) -> Ddl:
    """Return the DDL of a job; `schema` and `table`: what the job is about once it is done."""
    return Ddl(schema, table, query, job.action is Action.CREATE_SCHEMA)


def database_text(query: str, schema: str, before: Known) -> str:
    """Return a statement with the names of the catalogue as it was before it, and so that every reader reads what TiDB read. `schema`: of
    names without one. A statement that means the same as it is, or that cannot be parsed, stays."""
    printed = was_printed(query)
    found = FoundNames()
    try:
        canonical_ddl(query, names=found, printed=printed)
        names = catalogue_names(found, (schema, ""), (), lambda: (before,))
        if not names and not printed:
            return query
        known = RoutedNames(schema, lambda *name: names.get(name, name), lambda name: names.get((name, ""), (name, ""))[0], found)
        return canonical_ddl(query, names=known, dialect=EXACT, printed=printed)
    except DdlSyntaxError:
        return query
