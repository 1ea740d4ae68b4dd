"""What an operator does with the tables of a lake: list, verify, vacuum."""

from __future__ import annotations

import time
from typing import Any

from tidemill.errors import SinkError
from tidemill.sinks.lake.base import RESOLVED_TS, Tables
from tidemill.sinks.lake.delta import DeltaTables, delta_errors
from tidemill.sinks.lake.driver.dropped import DroppedTables
from tidemill.sinks.lake.manifest import TableAt, file_of, manifest_at, read_head, read_manifest, times
from tidemill.sinks.lake.open import lake_uri, store_of, tables_of
from tidemill.sinks.storage.store import Store
from tidemill.tso import describe, physical_ms


def _opened(place: str) -> tuple[Store, Tables]:
    uri = lake_uri(place)
    store = store_of(uri)
    return store, tables_of(uri, store)


def _delta(tables: Tables, what: str) -> DeltaTables:
    if not isinstance(tables, DeltaTables):
        raise SinkError(f"{tables}: {what} is for Delta tables", hint="Use the tools of the catalog or of an engine.")
    return tables


def listed(place: str, ts: int | None) -> tuple[int, list[dict[str, Any]]]:
    """Return a resolved ts and the tables at it. None: the newest."""
    store, tables = _opened(place)
    manifest = manifest_at(store, ts)
    found = []
    for at in (manifest.tables[name] for name in sorted(manifest.tables)):
        files = tables.files(at)
        entry = {"schema": at.schema, "table": at.table, "table_id": at.table_id, "place": at.place, "version": at.version}
        found.append({**entry, "rows": files.rows, "files": len(files.paths), "bytes": files.bytes})
    return manifest.resolved_ts, found


def verified(place: str, *, whole: bool) -> tuple[int, list[str]]:
    """Check the versions that manifests name: they and their files are there, and no commit in them is of a later ts. Returns their number
    and the problems."""
    store, opened = _opened(place)
    tables = _delta(opened, "verify")
    manifest_at(store, None)  # refuses a place without tables
    head = read_head(store)
    known = times(store) if whole else [head.manifest] if head.manifest else []
    checked: set[tuple[str, int]] = set()
    problems: list[str] = []
    for ts in known:
        for at in read_manifest(store, ts).tables.values():
            if (at.place, at.version) in checked:
                continue
            checked.add((at.place, at.version))
            try:
                problems += [f"manifest of {describe(ts)}: {at.schema}.{at.table}: {one}" for one in _problems(store, tables, at, ts)]
            except SinkError as error:
                problems.append(f"manifest of {describe(ts)}: {error.message}")
    return len(checked), problems


def _problems(store: Store, tables: DeltaTables, at: TableAt, ts: int) -> list[str]:
    there = set(store.names(at.place))
    found = [f"data file {name} is missing" for name in tables.files(at).sizes if name not in there]
    with delta_errors(tables.uri(at.place)):
        newest = next(one for one in tables.newest(at.place).history() if one["version"] == at.version)
    if int(newest.get(RESOLVED_TS, 0)) > ts:
        found.append(f"version {at.version} is of {describe(int(newest[RESOLVED_TS]))}, which is later")
    return found


def vacuumed(place: str, hours: float, *, dry_run: bool) -> tuple[int, int]:
    """Remove old manifests, then the data files that no version within the retention has. Returns how many of each."""
    store, opened = _opened(place)
    tables = _delta(opened, "vacuum")
    manifest_at(store, None)
    head, limit_ms = read_head(store), time.time() * 1000 - hours * 3_600_000
    known = [ts for ts in times(store) if ts <= head.manifest]
    # The newest manifest at or below the limit says what holds at the limit, so it stays.
    older = [ts for ts in known if physical_ms(ts) < limit_ms][:-1]
    places = {at.place for ts in known for at in read_manifest(store, ts).tables.values()}
    files = 0
    for one in sorted(places):
        with delta_errors(tables.uri(one)):
            files += len(tables.newest(one).vacuum(int(hours), dry_run=dry_run, enforce_retention_duration=False))
    if not dry_run:
        DroppedTables(store, tables).expire(int(limit_ms))
        for ts in older:
            store.delete(file_of(ts))
    return len(older), files
