"""Which DDL binlogs are delivered, and the text and names that they are delivered with."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.binlog.messages import SchemaState
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.job import DdlJob

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
