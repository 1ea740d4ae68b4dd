"""DDLs on their way to the database: what the driver needs of a DDL, as JSON. There is no message for a resolved ts."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from tidemill.protocols.common.messages import KeyValue
from tidemill.protocols.sql.literals import name
from tidemill.tidb.ddltext.synthesized import rename_tables
from tidemill.tidb.schema.codes import Action, MySQLType
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.show import create_table
from tidemill.tidb.schema.tracking.renames import Move, in_one_statement
from tidemill.tso import physical_ms

_WITHOUT_SCHEMA = frozenset({Action.CREATE_SCHEMA, Action.DROP_SCHEMA})
_NOW = "CURRENT_TIMESTAMP"
_NAME = "`(?:[^`]|``)+`"
_LIKE = re.compile(rf"CREATE TABLE (?:IF NOT EXISTS )?{_NAME}\.{_NAME} LIKE {_NAME}")
"""A table like one of the session's database, which is not known."""
_EXCHANGE = re.compile(rf"^(ALTER TABLE {_NAME}\.{_NAME} EXCHANGE PARTITION {_NAME} WITH TABLE )({_NAME})(?!\.)")


@dataclass(frozen=True, slots=True)
class Ddl:
    """A DDL to run. `schema`: the database to be in; empty: none. `now`: what CURRENT_TIMESTAMP stands for, in seconds since 1970."""

    ts: int
    table_id: int
    schema: str
    query: str
    now: float
    zone: str
    tables: tuple[str, ...] = ()  # that it is about: schema.table, or schema.* for a DDL of a database
    beside: bool = False  # rows need not wait for it

    @classmethod
    def of(cls, event: DdlEvent, zone: str) -> Ddl:
        """Return what is to be run for an event."""
        schema = "" if event.type in _WITHOUT_SCHEMA else event.schema
        beside = event.type == Action.ADD_INDEX
        query = _query_of(event)
        if event.after is not None and event.type == Action.CREATE_TABLE and _LIKE.fullmatch(query):
            query, zone = create_table(event.schema, event.after.info, UTC), "+00:00"
        return cls(event.ts, event.table_id, schema, query, time_of(event), zone, _tables_of(event), beside)

    @classmethod
    def parse(cls, text: bytes) -> Ddl:
        """Return the DDL that a message holds."""
        found = json.loads(text)
        return cls(**{**found, "tables": tuple(found["tables"])})

    def text(self) -> str:
        """Return the message."""
        return json.dumps(asdict(self))


def _query_of(event: DdlEvent) -> str:
    """Return the statement. A table may be renamed into another database; names without one were of the session's, which is not known."""
    if event.group:
        return rename_tables(in_one_statement([_move(member) for member in event.group], _spare))
    if event.type == Action.RENAME_TABLE and event.pre_schema and event.pre_table:
        return rename_tables([(_move(event).old, _move(event).new)])
    if event.type == Action.EXCHANGE_PARTITION and event.other is not None:
        return _EXCHANGE.sub(lambda found: f"{found[1]}{name(event.other.schema)}.{found[2]}" if event.other else found[0], event.query)
    return event.query


def _move(event: DdlEvent) -> Move:
    return Move(event.table_id, (event.pre_schema, event.pre_table), (event.schema, event.table))


def _spare(move: Move) -> tuple[str, str]:
    """Return the name that opens a ring. It is taken and left within one statement, which is atomic."""
    return move.old[0], f"_tidemill_renamed_{move.table_id}"


def _tables_of(event: DdlEvent) -> tuple[str, ...]:
    """Return the tables that a DDL is about, before and after it, in lower case."""
    events = event.group or (event,)
    versions = [(v.schema, v.table) for one in events for v in (one.before, one.after, one.other) if v is not None]
    names = [*((one.schema, one.table) for one in events), *((one.pre_schema, one.pre_table) for one in events), *versions]
    return tuple(sorted({f"{schema}.{table or '*'}".lower() for schema, table in names if schema}))


def time_of(event: DdlEvent) -> float:
    """Return the time that rows have in a column that the DDL adds with DEFAULT CURRENT_TIMESTAMP: what upstream gave them."""
    known = {column.id for column in event.before.info.columns} if event.before is not None else set()
    for column in event.after.info.public_columns if event.after is not None and known else ():
        if column.id in known or column.tp != MySQLType.TIMESTAMP or not str(column.default).upper().startswith(_NOW):
            continue
        if isinstance(column.origin_default, str):
            try:
                return datetime.fromisoformat(column.origin_default).replace(tzinfo=UTC).timestamp()
            except ValueError:
                break
    return physical_ms(event.start_ts or event.ts) / 1000


def zone_text(zone: tzinfo, given: str) -> str:
    """Return the time_zone of a session that runs DDLs: what the URI gives, else the changefeed's zone.

    A zone that keeps one offset over the year is that offset: a server need not know its name.
    """
    if given:
        return given.strip("'\"")
    offsets = {zone.utcoffset(datetime(2026, month, 1)) for month in range(1, 13)}
    minutes = int((offsets.pop() or timedelta()).total_seconds()) // 60
    if offsets:
        return str(zone)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


class MysqlControl:
    """See `protocols.common.messages.ControlMessages`."""

    ddl_on_first_partition = True

    def __init__(self, zone: tzinfo, given: str) -> None:
        self._zone = zone_text(zone, given)

    def ddl_message(self, event: DdlEvent) -> KeyValue | None:
        """Return the DDL; None for one without a text, and for all renames of a statement but the first: they run together."""
        if event.group and not event.leads_group:
            return None
        return (b"", Ddl.of(event, self._zone).text().encode()) if event.query.strip() else None

    def resolved_message(self, ts: int) -> KeyValue | None:
        """None."""
        return None
