"""INV6 and INV7 of a log: its rows, decoded by its own schemas, are what a SELECT would have shown at their commit ts; its DDLs come in
order, each once."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path
from random import Random

from tests.support.capture.captures import log_changes
from tidemill.changelog.history import load_history
from tidemill.changelog.reader import LogReader
from tidemill.playground.store.cluster import Cluster
from tidemill.playground.store.truth import tables_at
from tidemill.tidb.rows import RowReader


def check_schemas(cluster: Cluster, log: Path, random: Random, samples: int = 6) -> int:
    """Some rows of the log, chosen at random, and all its DDLs. The cluster keeps all history and holds no lock. Returns the DDLs."""
    reader = LogReader(log)
    history = load_history(reader)
    events = history.ddl_events(reader.start_ts, reader.resolved_ts())
    places = [(event.ts, event.schema_version, event.job_id, event.seq) for event in events]
    assert places == sorted(places)
    assert len({(event.job_id, event.seq) for event in events}) == len(events), "a DDL is told twice"
    rows = [row for part in log_changes(log).values() for row in part if row.value is not None and row.commit_ts <= reader.resolved_ts()]
    for row in random.sample(rows, min(samples, len(rows))):
        version = history.snapshot(row.commit_ts - 1).by_physical.get(row.table_id)
        if version is None:
            continue
        names = [column.name for column in version.info.output_columns]
        told = dict(zip(names, RowReader(version.info, UTC).read(row.key, row.value), strict=True))
        table = tables_at(cluster.mvcc, row.commit_ts)[version.schema, version.table]
        assert told in table.rows, f"{version.schema}.{version.table} at {row.commit_ts}: {told}"
    return len(events)
