"""What the driver needs of a DDL to run it. As JSON it is in the books, where it goes on over restarts."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from tidemill.budget import STATE, Budget
from tidemill.sinks.mysql.dialect import special_indexes
from tidemill.sinks.mysql.moment import Moment, offset_text
from tidemill.tidb.ddltext.synthesized import rename_tables
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.show import create_table
from tidemill.tidb.schema.tracking.renames import Move, in_one_statement
from tidemill.tso import physical_ms

_WITHOUT_SCHEMA = frozenset({Action.CREATE_SCHEMA, Action.DROP_SCHEMA})
_NAME = "(?:`(?:[^`]|``)+`\\.)?`(?:[^`]|``)+`"
_LIKE = re.compile(rf"CREATE TABLE (IF NOT EXISTS )?{_NAME} LIKE {_NAME}")


@dataclass(frozen=True, slots=True)
class Ddl:
    """A DDL to run. `schema`: the database to be in; empty: none. `now`: what CURRENT_TIMESTAMP stands for, in seconds since 1970.

    `offset`: what may stand for `zone` where the server does not know its name; empty: nothing may. `special`: see
    `dialect.special_indexes`; those of the table before and after the DDL.
    """

    ts: int
    table_id: int
    schema: str
    query: str
    now: float
    zone: str
    tables: tuple[str, ...] = ()  # that it is about: schema.table, or schema.* for a DDL of a database
    beside: bool = False  # rows need not wait for it
    offset: str = ""
    special: tuple[tuple[str, str], ...] = ()
    known_as: str = ""  # the text by which it is known again where `query` depends on the database; empty: `query`

    @classmethod
    def of(cls, event: DdlEvent, zone: str) -> Ddl | None:
        """Return what is to be run for an event, whose text is one for databases, see `delivery.inputs.routed_names`; None for one without
        a text, and for all renames of a statement but the first: they run together."""
        if not event.query.strip() or (event.group and not event.leads_group):
            return None
        schema = "" if event.type in _WITHOUT_SCHEMA else event.schema
        beside = event.type == Action.ADD_INDEX
        query = _query_of(event)
        # The table that it is to be like may have another definition downstream, or not be there.
        if event.after is not None and event.type == Action.CREATE_TABLE and (like := _LIKE.fullmatch(query)):
            query, zone = create_table(event.schema, event.after.info, UTC, if_not_exists=bool(like[1])), "+00:00"
        versions = [version for version in (event.before, event.after) if version is not None]
        special = tuple(dict.fromkeys(found for version in versions for found in special_indexes(version.info)))
        before, after = (version.info if version is not None else None for version in (event.before, event.after))
        moment = Moment(before, after, physical_ms(event.start_ts or event.ts), zone)
        return cls(
            event.ts, event.table_id, schema, query, moment.now, zone, _tables_of(event), beside, offset=moment.offset, special=special
        )

    @classmethod
    def parse(cls, text: bytes) -> Ddl:
        """Return the DDL of a JSON text."""
        found = Budget(STATE).json(text)
        special = tuple((name, part) for name, part in found.get("special", ()))
        return cls(**{**found, "tables": tuple(found["tables"]), "special": special})

    def text(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))


def _query_of(event: DdlEvent) -> str:
    """Return the statement: all renames of one statement together."""
    return rename_tables(in_one_statement([_move(member) for member in event.group], _spare)) if event.group else event.query


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


def zone_text(zone: tzinfo, given: str) -> str:
    """Return the time_zone of a session that runs DDLs: what the URI gives, else the changefeed's zone.

    A zone that keeps one offset over the year is that offset: a server need not know its name.
    """
    if given:
        return given.strip("'\"")
    offsets = {zone.utcoffset(datetime(2026, month, 1)) for month in range(1, 13)}
    offset = offsets.pop() or timedelta()
    return str(zone) if offsets else offset_text(offset)
