"""DDL jobs: the JSON that TiDB keeps for a running or finished DDL. Its arguments have two forms, by TiDB's version."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from tidemill.errors import SchemaError
from tidemill.tidb.schema.codes import Action, JobState
from tidemill.tidb.schema.model import DBInfo, Json, TableInfo

T = TypeVar("T")

_ACTIONS = {int(action): action for action in Action}
_STATES = {int(state): state for state in JobState}


def _action(code: int) -> Action | int:
    return _ACTIONS.get(code, code)


def _state(code: int) -> JobState | int:
    return _STATES.get(code, code)


def _sub_job(data: Json) -> SubJob:
    return SubJob(_action(data["type"]), _state(data["state"]), data.get("schema_state", 0), data.get("schema_version", 0))


def _text(value: Any) -> str:
    return str(value.get("O") or "") if isinstance(value, Mapping) else str(value or "")


@dataclass(frozen=True, slots=True)
class Rename:
    """One pair of RENAME TABLES. The old table name is empty where an old job lacks it."""

    table_id: int
    old_schema_id: int
    old_schema: str
    old_table: str
    new_schema_id: int
    new_table: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """The partitioned side of EXCHANGE PARTITION; the job itself names the plain table."""

    schema_id: int
    table_id: int
    partition_id: int
    partition: str


@dataclass(frozen=True, slots=True)
class SubJob:
    """A part of a multi-schema change. `schema_version`: of its last step; 0 if that shared the version of a part before it."""

    action: Action | int
    state: JobState | int
    schema_state: int
    schema_version: int = 0


SHARED = 1
"""The mode, in involving_schema_info, of what a job only reads."""


def _sources(involved: Iterable[Json]) -> Iterator[tuple[str, str]]:
    yield from ((each["database"], each["table"]) for each in involved if each.get("mode") == SHARED and "table" in each)


@dataclass(frozen=True)
class DdlJob:
    """A DDL job at one step.

    TiDB fills in `schema_version` and the infos of `binlog` at the end. No slots: infos are parsed on first use and cached.
    """

    id: int
    action: Action | int
    state: JobState | int
    schema_state: int
    schema_id: int
    table_id: int
    schema_name: str
    table_name: str
    query: str
    start_ts: int
    schema_version: int
    version: int  # of the arguments
    sql_mode: int
    charset: str
    collate: str
    binlog: Json
    args: Any
    sub_jobs: tuple[SubJob, ...]
    bdr_role: str = ""  # of the cluster when the statement was queued
    by_cdc: bool = False  # a change data capture ran it
    sources: tuple[tuple[str, str], ...] = ()  # schema and table of those that the job only reads

    @classmethod
    def from_json(cls, data: Json) -> DdlJob:
        """Parse a job as TiDB stores it. Raises SchemaError."""
        try:
            return cls._from_json(data)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise SchemaError(f"a DDL job cannot be read: {type(error).__name__} {error}") from error

    @classmethod
    def _from_json(cls, data: Json) -> DdlJob:
        get = data.get
        binlog = get("binlog") or {}
        multi = get("multi_schema_info") or {}
        return cls(
            id=data["id"],
            action=_action(data["type"]),
            state=_state(data["state"]),
            schema_state=get("schema_state", 0),
            schema_id=get("schema_id", 0),
            table_id=get("table_id", 0),
            schema_name=get("schema_name", ""),
            table_name=get("table_name", ""),
            query=get("query", ""),
            start_ts=get("start_ts", 0),
            schema_version=binlog.get("SchemaVersion") or 0,
            version=get("version", 1) or 1,
            sql_mode=get("sql_mode") or (get("reorg_meta") or {}).get("sql_mode") or 0,
            charset=get("charset", ""),
            collate=get("collate", ""),
            binlog=binlog,
            args=get("raw_args"),
            sub_jobs=tuple(map(_sub_job, multi.get("sub_jobs") or ())),
            bdr_role=get("bdr_role") or "",
            by_cdc=bool(get("cdc_write_source")),
            sources=tuple(_sources(get("involving_schema_info") or ())),
        )

    @classmethod
    def parse(cls, text: bytes) -> DdlJob:
        """Parse the JSON text of a job. Raises SchemaError."""
        try:
            data = json.loads(text.decode("utf-8", "replace"))
        except ValueError as error:
            raise SchemaError(f"a DDL job is not JSON: {error}") from error
        if not isinstance(data, dict):
            raise SchemaError("a DDL job is not a JSON object")
        return cls.from_json(data)

    @property
    def is_done(self) -> bool:
        """Whether the job succeeded: its state is `done`, or `synced` where TiDB keeps only a job's end."""
        return self.state in (JobState.DONE, JobState.SYNCED)

    @property
    def actions(self) -> tuple[Action | int, ...]:
        """The job's action, or those of its parts."""
        return tuple(s.action for s in self.sub_jobs) or (self.action,)

    @cached_property
    def table_info(self) -> TableInfo | None:
        """The table after a finished job."""
        info = self.binlog.get("TableInfo")
        return TableInfo.from_json(info) if info else None

    @cached_property
    def table_infos(self) -> tuple[TableInfo, ...]:
        """The tables after a finished job about several tables."""
        return tuple(TableInfo.from_json(info) for info in self.binlog.get("MultipleTableInfos") or () if info)

    @cached_property
    def db_info(self) -> DBInfo | None:
        """The database after a finished job about a database."""
        info = self.binlog.get("DBInfo")
        return DBInfo.from_json(info) if info else None

    @cached_property
    def renames(self) -> tuple[Rename, ...]:
        """The pairs of RENAME TABLES in the order of the statement."""
        if self.action != Action.RENAME_TABLES or not self.args:
            return ()
        return self._arguments(_renames_v2, _renames_v1)

    @cached_property
    def exchange(self) -> Exchange | None:
        """The partitioned table of EXCHANGE PARTITION."""
        if self.action != Action.EXCHANGE_PARTITION or not self.args:
            return None
        return self._arguments(
            lambda args: Exchange(args["pt_schema_id"], args["pt_table_id"], args["partition_id"], args["partition_name"]),
            lambda args: Exchange(args[1], args[2], args[0], args[3]),
        )

    @cached_property
    def created_ids(self) -> tuple[int, ...]:
        """Ids of the tables that CREATE TABLES makes, in the order of its statements."""
        if self.action != Action.CREATE_TABLES:
            return ()
        if self.table_infos:
            return tuple(info.id for info in self.table_infos)
        if not self.args:
            return ()
        return self._arguments(
            lambda args: tuple(entry["table_info"]["id"] for entry in args["tables"]), lambda args: tuple(entry["id"] for entry in args[0])
        )

    def _arguments(self, by_name: Callable[[Any], T], by_position: Callable[[Any], T]) -> T:
        """Return the arguments, read by name (an object, since v8.4) or by position (a list, before)."""
        try:
            return by_name(self.args) if isinstance(self.args, Mapping) else by_position(self.args)
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise SchemaError(f"the arguments of DDL job {self.id} (type {self.action}) cannot be read: {error!r}") from error


def _renames_v2(args: Mapping[str, Any]) -> tuple[Rename, ...]:
    return tuple(
        Rename(
            table_id=pair["table_id"],
            old_schema_id=pair["old_schema_id"],
            old_schema=_text(pair.get("old_schema_name")),
            old_table=_text(pair.get("old_table_name")),
            new_schema_id=pair["new_schema_id"],
            new_table=_text(pair["new_table_name"]),
        )
        for pair in args["rename_table_infos"]
    )


def _renames_v1(args: Sequence[Any]) -> tuple[Rename, ...]:
    """Read [old schema ids, new schema ids, new names, table ids, old schema names, old table names]. Old jobs lack the last ones."""
    old_ids, new_ids, new_names, table_ids = args[:4]
    old_schemas = args[4] if len(args) > 4 else [""] * len(table_ids)
    old_tables = args[5] if len(args) > 5 else [""] * len(table_ids)
    rows = zip(table_ids, old_ids, old_schemas, old_tables, new_ids, new_names, strict=True)
    return tuple(Rename(t, o, _text(os), _text(ot), n, _text(nn)) for t, o, os, ot, n, nn in rows)
