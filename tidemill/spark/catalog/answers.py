"""What the catalog answers: databases, tables, and how a table is read. From the cluster where the catalog names one, else from the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tidemill.errors import ConfigError
from tidemill.spark.catalog.questions import Asked, Question, as_of, interval
from tidemill.spark.cluster.connection import cluster_of, connected
from tidemill.spark.source.frame import CHANGELOG, chosen
from tidemill.spark.source.options import NAMES as CHANGES_NAMES
from tidemill.spark.source.options import Options, parse_options
from tidemill.spark.source.planner import Planner
from tidemill.spark.table.options import NAMES as TABLE_NAMES
from tidemill.spark.table.options import parse_table_options
from tidemill.spark.table.upstream import schema_at
from tidemill.tidb.columns.forms import TimeAs, column_type
from tidemill.tidb.keys import is_system_schema
from tidemill.tidb.names import folded, folded_table, quote_name
from tidemill.tidb.schema.tracking.versions import SchemaSnapshot, TableVersion


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer. `exists`: what was asked about is there. `columns`: of a table, with comments in their metadata."""

    exists: bool
    names: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    name: str = ""
    columns: pa.Schema = field(default_factory=lambda: pa.schema([]))
    properties: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    def metadata(self) -> dict[str, Any]:
        """Return what stands beside the columns, as metadata of a field."""
        lists = {"names": list(self.names), "key": list(self.key)}
        return {"exists": self.exists, "name": self.name, **lists, "properties": dict(self.properties), "options": dict(self.options)}


NOTHING = Answer(False)


def answer(asked: Asked) -> Answer:
    """Answer a question. Raises ConfigError, SchemaError, StartTsBeforeGc, UpstreamError, LogUnavailable."""
    match asked.question:
        case Question.DATABASES:
            return Answer(True, _databases(_present(asked)))
        case Question.DATABASE:
            return _database(asked, _present(asked))
        case Question.TABLES:
            return _tables_of(asked, _present(asked))
        case Question.TABLE:
            return asyncio.run(_table(asked))
    return _changes(asked)


def _databases(snapshot: SchemaSnapshot) -> tuple[str, ...]:
    return tuple(sorted(name for info in snapshot.databases.values() if not is_system_schema(name := info.name)))


def _tables(snapshot: SchemaSnapshot) -> list[TableVersion]:
    """The tables that have rows: no views, no sequences."""
    return sorted((v for v in snapshot.tables.values() if v.info.has_rows and not is_system_schema(v.schema)), key=lambda v: v.name)


def _database(asked: Asked, snapshot: SchemaSnapshot) -> Answer:
    names = [name for name in _databases(snapshot) if folded(name) == folded(asked.database)]
    return Answer(True, tuple(names), name=names[0]) if names else NOTHING


def _tables_of(asked: Asked, snapshot: SchemaSnapshot) -> Answer:
    database = _database(asked, snapshot)
    return replace(database, names=tuple(version.table for version in _tables(snapshot) if version.schema == database.name))


def _present(asked: Asked) -> SchemaSnapshot:
    """The newest schema there is."""
    if "pd" in asked.settings:
        return asyncio.run(_of_cluster(asked, lambda now: now))
    planner = Planner(_log_options(asked, tables="*.*"))
    ts = planner.reader.schema_head()
    return planner.history(ts).snapshot(ts)


async def _of_cluster(asked: Asked, choose: Callable[[int], int]) -> SchemaSnapshot:
    async with connected(cluster_of(asked.settings)) as pd:
        return await schema_at(pd, choose)


async def _table(asked: Asked) -> Answer:
    """The table as of the query's ts, and how `tidemill.table` reads it."""
    if "pd" not in asked.settings:
        raise ConfigError(
            f"{asked.database}.{asked.table}: the catalog has a log and no cluster, and a log has changes, not tables",
            hint="Read its changes (SELECT … FROM t CHANGES …), or set spark.sql.catalog.NAME.pd to read the table from TiKV.",
        )
    settings = asked.for_format(TABLE_NAMES)
    moment = as_of(asked.about, {name: settings.pop(name) for name in ("asOfTs", "asOfTimestamp") if name in settings})
    parsed = parse_table_options({**settings, **moment, "table": _quoted(asked.database, asked.table)})
    snapshot = await _of_cluster(asked, parsed.ts)
    version = _named(asked, snapshot)
    if version is None:
        return NOTHING
    options = {**settings, "table": _quoted(*version.name), "asOfTs": str(snapshot.ts)}
    return Answer(
        True,
        key=version.info.handle_key_names,
        name=".".join(version.name),
        columns=_columns(version, parsed.columns, parsed.time_as),
        properties={**_properties(version), "as-of-ts": str(snapshot.ts)},
        options=options,
    )


def _changes(asked: Asked) -> Answer:
    """The table's changes, and how `tidemill` reads them."""
    bounds = interval(asked.about)
    options = {**asked.for_format(CHANGES_NAMES), **bounds, "table": _quoted(asked.database, asked.table)}
    parsed = parse_options(options)
    planner = Planner(parsed)
    version = planner.find_version(planner.last_ts())
    if version is None:
        return NOTHING
    columns = _columns(version, parsed.columns, parsed.time_as)
    return Answer(
        True,
        key=version.info.handle_key_names,
        name=".".join(version.name),
        columns=pa.schema([*columns, *CHANGELOG]),
        properties=_properties(version),
        options={**options, "table": _quoted(*version.name)},
    )


def _named(asked: Asked, snapshot: SchemaSnapshot) -> TableVersion | None:
    wanted = folded_table((asked.database, asked.table))
    return next((version for version in _tables(snapshot) if folded_table(version.name) == wanted), None)


def _log_options(asked: Asked, **more: str) -> Options:
    return parse_options({**{n: asked.settings[n] for n in ("log", "logFile") if n in asked.settings}, **more})


def _columns(version: TableVersion, names: tuple[str, ...], time_as: TimeAs) -> pa.Schema:
    kept = chosen(version, names)
    comments = ({b"comment": column.comment.encode()} if column.comment else None for column in kept)
    fields = zip(kept, comments, strict=True)
    return pa.schema([pa.field(column.name, column_type(column, time_as).arrow, metadata=comment) for column, comment in fields])


def _properties(version: TableVersion) -> dict[str, str]:
    comment = {"comment": version.info.comment} if version.info.comment else {}
    partitions = {"partitions": str(len(version.physical_ids))} if version.info.partition is not None else {}
    return {**comment, "key": ", ".join(version.info.handle_key_names), "table-id": str(version.table_id), **partitions}


def _quoted(database: str, table: str) -> str:
    return f"{quote_name(database)}.{quote_name(table)}"
