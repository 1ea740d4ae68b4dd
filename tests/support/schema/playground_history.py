"""The schema history of a playground, and its tables by it."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from tidemill.events import Op
from tidemill.playground.server import Playground
from tidemill.tidb import keys
from tidemill.tidb.rows import RowReader
from tidemill.tidb.schema.tracking.history import SchemaHistory


def history_of(playground: Playground, start_ts: int) -> tuple[SchemaHistory, int]:
    """The history from a bootstrap at start_ts and all changes since."""
    mvcc = playground.cluster.mvcc
    pairs = [(k, v) for k, v in mvcc.scan(b"m", b"n", start_ts) if isinstance(v, bytes)]
    history = SchemaHistory.bootstrap(start_ts, pairs)
    changes: list[tuple[Any, ...]] = []
    for table_id, (start, end) in ((0, (b"m", b"n")), (keys.DDL_JOB_TABLE_ID, keys.record_range(keys.DDL_JOB_TABLE_ID))):
        for key, versions in mvcc.items(start, end):
            for commit_ts, begin_ts, value in versions:
                if commit_ts > start_ts:
                    changes.append((table_id, Op.PUT if value is not None else Op.DELETE, begin_ts, commit_ts, key, value))
    now = playground.cluster.oracle.next()
    history.advance(changes, now)
    return history, now


def replayed(playground: Playground, history: SchemaHistory, ts: int) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Tables at a ts by the history's versions and the rows of their physical ids."""
    found = {}
    for version in history.snapshot(ts).tables.values():
        if keys.is_system_schema(version.schema) or version.info.is_view:
            continue
        reader = RowReader(version.info, UTC)
        names = [c.name for c in version.info.output_columns]
        rows = []
        for physical in version.physical_ids:
            for key, value in playground.cluster.mvcc.scan(*keys.record_range(physical), ts):
                assert isinstance(value, bytes)
                rows.append(dict(zip(names, reader.read(key, value), strict=True)))
        found[version.schema, version.table] = rows
    return found
