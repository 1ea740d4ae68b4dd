"""Schema histories made by hand: a cluster with the database `d` and its tables `t` and `p`, jobs on them, and what a history tells."""

from __future__ import annotations

from tests.support.schema import schema_streams as streams
from tests.support.schema import schemas as s
from tidemill.tidb import keys
from tidemill.tidb.schema.codes import Action, JobState
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.tracking.history import SchemaHistory

DB, T1, T2 = 2, 10, 11


DONE, RUNNING = JobState.DONE, JobState.RUNNING


def pairs(*tables: s.Json, jobs: bool = True) -> list[tuple[bytes, bytes]]:
    """A cluster with the database `d` and these tables."""
    found = s.job_table_pairs() if jobs else [(keys.db_key(1), s.text(s.database(1, "mysql")))]
    found.append((keys.db_key(DB), s.text(s.database(DB, "d"))))
    return [*found, *((keys.table_key(DB, info["id"]), s.text(info)) for info in tables), (keys.SCHEMA_VERSION_KEY, b"5")]


def begun(*tables: s.Json, ts: int = 100, **options: bool) -> SchemaHistory:
    return SchemaHistory.bootstrap(ts, pairs(*tables), **options)


def events(history: SchemaHistory) -> list[DdlEvent]:
    return history.ddl_events(history.start_ts, history.resolved_ts)


def named(job_id: int, action: Action, state: JobState, query: str = "", **members: object) -> s.Json:
    members = {"schema_id": DB, "table_id": T1, "schema_name": "d", **members}
    if state == DONE:
        members.setdefault("schema_version", 6)
    return s.job(job_id, action, state, query=query, **members)  # type: ignore[arg-type]


def comment(text: str) -> s.Json:
    return s.table(T1, "t", comment=text)


def with_history_table(*tables: s.Json) -> SchemaHistory:
    return SchemaHistory.bootstrap(100, [*pairs(*tables), streams.history_table_pair()])
