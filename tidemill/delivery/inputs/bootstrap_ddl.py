"""Statements that create tables downstream ahead of the rows of an initial load or a resync: the `create-tables` of a changefeed.

They stand just below the ts of the rows, S - 1, at the end of a batch like any DDL: consumers apply what is at or below a DDL's ts before
it, what is above it after it. Each says IF NOT EXISTS, because tables may exist at a resync, and a batch may be delivered twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import tzinfo

from tidemill.changelog.initial_load import Plan
from tidemill.tidb.ddltext import DdlSyntaxError, canonical_ddl
from tidemill.tidb.keys import is_system_schema
from tidemill.tidb.schema.codes import Action, SchemaState
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.model import DBInfo
from tidemill.tidb.schema.show import create_database, create_table
from tidemill.tidb.schema.tracking.versions import SchemaSnapshot, TableVersion
from tidemill.visible import short_statement

log = logging.getLogger(__name__)

Name = tuple[str, str]
Draft = tuple[str, DBInfo | None, TableVersion | None]


def creating(plan: Plan, tables: SchemaSnapshot, zone: tzinfo, *, first: bool) -> list[DdlEvent]:
    """CREATE DATABASE, then CREATE TABLE of the plan's tables, as they are described in `tables`. A table that another one references
    comes before it.

    `first`: the log begins with this plan, so empty databases are created as well.
    """
    versions = [tables.tables[t.table_id] for t in plan.tables if t.table_id in tables.tables]
    wanted = {version.schema for version in versions}
    databases = [d for d in tables.databases.values() if d.state == SchemaState.PUBLIC and not is_system_schema(d.name)]
    databases = sorted((d for d in databases if first or d.name in wanted), key=lambda d: d.id)
    drafts: list[Draft] = [(create_database(d), d, None) for d in databases]
    drafts += [(create_table(v.schema, v.info, zone, if_not_exists=True), None, v) for v in in_order(versions)]
    return [_event(plan.ts - 1, seq, text, database, version) for seq, (text, database, version) in enumerate(drafts)]


def _event(ts: int, seq: int, text: str, database: DBInfo | None, version: TableVersion | None) -> DdlEvent:
    try:
        query, reprinted = canonical_ddl(text), True
    except DdlSyntaxError as error:  # a type or a function that is newer than the grammar
        query, reprinted = text, False
        log.warning(
            "what creates a table cannot be printed as TiDB prints DDLs: %s; it goes out as SHOW CREATE TABLE says it: %s",
            error,
            short_statement(text),
        )
    return DdlEvent(
        ts=ts,
        done_ts=ts,
        job_id=0,
        schema_version=0,
        seq=seq,
        type=Action.CREATE_SCHEMA if version is None else Action.CREATE_TABLE,
        schema=version.schema if version is not None else database.name if database is not None else "",
        table=version.table if version is not None else "",
        pre_schema="",
        pre_table="",
        table_id=version.table_id if version is not None else 0,
        query=query,
        raw_query=text,
        reprinted=reprinted,
        after=version,
        start_ts=ts,
    )


def in_order(versions: Iterable[TableVersion]) -> list[TableVersion]:
    """By id, but a table that a foreign key refers to comes before the table with the key. In a circle any one comes first."""
    by_name: dict[Name, TableVersion] = {_name(*v.name): v for v in sorted(versions, key=lambda v: v.table_id)}
    found: dict[Name, TableVersion] = {}
    begun: set[Name] = set()
    stack = [(name, False) for name in reversed(by_name)]
    while stack:
        name, is_ready = stack.pop()
        if is_ready:
            found.setdefault(name, by_name[name])
        elif name not in begun:
            begun.add(name)
            stack.append((name, True))
            keys = by_name[name].info.details.foreign_keys
            needed = [_name(key.schema or by_name[name].schema, key.table) for key in keys]
            stack += [(other, False) for other in needed if other in by_name and other not in begun]
    return list(found.values())


def _name(schema: str, table: str) -> Name:
    return schema.lower(), table.lower()
