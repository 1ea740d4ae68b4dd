"""The schema history of the recording with some 45 DDLs."""

from __future__ import annotations

import base64

from tests.support.schema import schemas as s
from tidemill.tidb import keys
from tidemill.tidb.schema.tracking.history import SchemaChange, SchemaHistory, meta_filter
from tidemill.wire import cdcpb_pb2

OP_DELETE = 2
TABLES = {1: 0, 2: keys.DDL_JOB_TABLE_ID, 3: keys.DDL_HISTORY_TABLE_ID}
"""Table id of the changes by request id of the recording."""


def feed() -> list[SchemaChange]:
    """The incremental scan at the recording's end: every version of every key."""
    changes = []
    for line in s.read_lines("tikv/recordings/ddl_jobs.jsonl.gz"):
        if line["kind"] != "resp" or line["stream"] != 2:
            continue
        for event in cdcpb_pb2.ChangeDataEvent.FromString(base64.b64decode(line["b64"])).events:
            for row in event.entries.entries:
                if row.type == cdcpb_pb2.Event.COMMITTED:
                    value = None if row.op_type == OP_DELETE else row.value
                    table_id = TABLES[event.request_id - 100]
                    op = s.DELETE if value is None else s.PUT
                    changes.append(SchemaChange(table_id, op, row.start_ts, row.commit_ts, row.key, value))
    return changes


def recorded_history() -> tuple[SchemaHistory, int, int]:
    """The history, and the ts before and at its end."""
    changes = feed()
    first, last = min(c.commit_ts for c in changes) - 1, max(c.commit_ts for c in changes)
    history = SchemaHistory.bootstrap(first, s.job_table_pairs())
    history.advance([c for c in changes if c.table_id != 0 or meta_filter(c.key)], last)
    return history, first, last
