"""The verdict on a log: against every version that the upstream ever held, and against its tables as they are read at the resolved ts."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from tests.support.capture.captures import Change, compare_changes, log_changes
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.client.tls import Security
from tidemill.capture.tikv.read.snapshot import Snapshot
from tidemill.changelog import initial_load
from tidemill.changelog.reader import LogReader
from tidemill.changelog.storage.open import open_storage
from tidemill.changelog.verify import verify
from tidemill.playground.store.feed import LOSSY_DDL_MASK
from tidemill.playground.store.truth import describe_remote
from tidemill.tidb.keys import record_range
from tidemill.tidb.schema.codes import Action
from tidemill.tidb.schema.tracking.history import SchemaHistory
from tidemill.tidb.schema.tracking.versions import PhysicalChange

Rows = dict[bytes, bytes]
COPIED = (Action.REORGANIZE_PARTITION, Action.ALTER_PARTITIONING, Action.REMOVE_PARTITIONING)


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a key in the upstream's store."""

    table_id: int
    start_ts: int
    commit_ts: int
    value: bytes | None
    lossy: bool  # a DDL wrote it: no feed tells of it


class Truth:
    """A dump of the upstream: the versions of each key, oldest first."""

    def __init__(self, path: Path) -> None:
        self.versions: dict[bytes, list[Version]] = defaultdict(list)
        self.keys_of: dict[int, list[bytes]] = defaultdict(list)
        with pa.memory_map(str(path)) as file:
            for row in pa.ipc.open_file(file).read_all().to_pylist():
                if row["key"] not in self.versions:
                    self.keys_of[row["table_id"]].append(row["key"])
                lossy = bool(row["source"] & LOSSY_DDL_MASK)
                self.versions[row["key"]].append(Version(row["table_id"], row["start_ts"], row["commit_ts"], row["value"], lossy))

    def changes(self, from_ts: int, to_ts: int) -> Iterable[Change]:
        """What a feed tells of (from_ts, to_ts]."""
        for key, versions in self.versions.items():
            before: bytes | None = None
            for v in versions:
                if from_ts < v.commit_ts <= to_ts and not v.lossy:
                    yield Change(v.table_id, key, v.start_ts, v.commit_ts, v.value, before)
                before = v.value

    def rows_at(self, table_id: int, ts: int, *, told: bool = False) -> Rows:
        """The rows of a physical table at a ts; `told`: as feeds tell, without what a DDL wrote."""
        found: Rows = {}
        for key in self.keys_of[table_id]:
            fitting = [v.value for v in self.versions[key] if v.commit_ts <= ts and not (told and v.lossy)]
            if fitting and fitting[-1] is not None:
                found[key] = fitting[-1]
        return found


@dataclass
class State:
    """The tables as the log makes them: rows by physical id."""

    truth: Truth
    history: SchemaHistory
    start_ts: int
    rows: dict[int, Rows] = field(default_factory=dict)
    in_force: set[int] = field(default_factory=set)
    actions: dict[int, set[int]] = field(default_factory=dict)  # ts → actions of DDLs that stand there

    def __post_init__(self) -> None:
        for physical in self.history.snapshot(self.start_ts).by_physical:
            self.rows[physical] = self.truth.rows_at(physical, self.start_ts, told=True)
            self.in_force.add(physical)
        for event in self.history.ddl_events(self.start_ts, self.history.resolved_ts):
            self.actions.setdefault(event.ts, set()).add(event.type)

    def run(self, changes: Iterable[Change], to_ts: int) -> None:
        """All rows of the log up to `to_ts`, in order, and the switches between them."""
        switches = self.history.next_table_changes(self.start_ts, to_ts)
        at = 0
        for change in changes:
            while at < len(switches) and switches[at].ts < change.commit_ts:
                self._switch(switches[at])
                at += 1
            if change.commit_ts <= to_ts:
                self._apply(change)
        for switch in switches[at:]:
            self._switch(switch)

    def _apply(self, change: Change) -> None:
        if change.table_id not in self.in_force:
            return  # a copy that a reorganisation made, or a row of a table that is gone
        if change.value is None:
            self.rows[change.table_id].pop(change.key, None)
        else:
            self.rows[change.table_id][change.key] = change.value

    def _switch(self, switch: PhysicalChange) -> None:
        actions = self.actions.get(switch.ts, set())
        copied = bool(actions & set(COPIED))
        recovered = not actions or Action.RECOVER_TABLE in actions  # FLASHBACK DATABASE makes no event
        if copied:
            self._check_copies(switch)
        for physical in switch.added:
            if copied:
                self.rows[physical] = self.truth.rows_at(physical, switch.ts)
            elif physical not in self.rows:  # an id that was there before comes back with its rows
                self.rows[physical] = self.truth.rows_at(physical, switch.ts, told=True) if recovered else {}
        self.in_force -= set(switch.removed)
        self.in_force |= set(switch.added)

    def _check_copies(self, switch: PhysicalChange) -> None:
        """What a reorganisation copied is what the log has of the partitions before."""
        before = {_handle(key) for physical in switch.removed for key in self.rows[physical]}
        after = {_handle(key) for physical in switch.added for key in self.truth.rows_at(physical, switch.ts)}
        assert before == after, f"at {switch.ts} the partitions {switch.removed} hold other rows in the log than in {switch.added}"


def _handle(key: bytes) -> bytes:
    return key[11:]


async def _read(pd: str, security: Security | None, ts: int) -> dict[tuple[str, str], dict[int, Rows]]:
    """The tables of users at `ts` through PD and KvScan: rows by physical id."""
    client = await PdClient.connect(pd, security=security)
    try:
        snapshot = Snapshot(client, ts)
        found: dict[tuple[str, str], dict[int, Rows]] = {}
        for name, info in (await describe_remote(snapshot)).items():
            found[name] = {p: {k: v async for k, v in snapshot.scan(*record_range(p))} for p in info.physical_ids}
        return found
    finally:
        await client.close()


def judge(log: Path, dump: Path, pd: str, security: Security | None) -> str:
    """Raises AssertionError for what the log lacks, has twice or out of order, or has otherwise than the upstream. Returns figures."""
    reader = LogReader(log)
    end = reader.resolved_ts()
    report = verify(str(log))
    assert report.is_whole, report.problems
    truth = Truth(dump)
    logged = log_changes(log)
    n, history = compare_changes(truth.changes(reader.start_ts, end), log)
    state = State(truth, history, reader.start_ts)
    state.run(sorted((row for rows in logged.values() for row in rows), key=lambda r: (r.commit_ts, r.start_ts, r.table_id, r.key)), end)
    initial_rows = _check_initial(log, truth, history)
    tables = asyncio.run(_read(pd, security, end))
    known = {(v.schema, v.table) for v in history.snapshot(end).tables.values() if v.info.has_rows}
    assert set(tables) == known, f"tables of the upstream and of the log differ: {set(tables) ^ known}"
    total = 0
    for name, parts in tables.items():
        for physical, rows in parts.items():
            assert physical in state.in_force, f"{name} lies in {physical}, which the log does not know"
            _same(name, physical, rows, state.rows[physical], truth, end)
            total += len(rows)
    events = history.ddl_events(reader.start_ts, end)
    kinds = len({e.type for e in events})
    return f"{n} changes, {len(events)} DDLs of {kinds} kinds, {total} rows in {len(tables)} tables at {end}, {initial_rows} initial rows"


def _check_initial(log: Path, truth: Truth, history: SchemaHistory) -> int:
    """Tables as of one ts hold what the upstream had then; returns their rows."""
    storage, reader = open_storage(str(log)), LogReader(log)
    total = 0
    for plan in initial_load.plans(storage, history.start_ts):
        assert initial_load.missing(storage, plan) == [], f"parts of {plan.ts} are missing"
        for table_id, paths in initial_load.paths(storage, plan).items():
            found: Rows = {}
            for path in paths:
                segment = reader.open_segment(path)
                for i in range(segment.num_record_batches):
                    for row in segment.get_batch(i).to_pylist():
                        assert row["commit_ts"] == plan.ts
                        assert row["key"] not in found, "a row is there twice"
                        found[row["key"]] = row["value"]
            version = history.snapshot(plan.ts).tables[table_id]
            wanted = {k: v for p in version.physical_ids for k, v in truth.rows_at(p, plan.ts).items()}
            assert found == wanted, f"{version.schema}.{version.table} as of {plan.ts} is not what the upstream had"
            total += len(found)
    return total


def _same(name: tuple[str, str], physical: int, stored: Rows, logged: Rows, truth: Truth, ts: int) -> None:
    told = truth.rows_at(physical, ts, told=True)
    for key in stored.keys() | logged.keys():
        if stored.get(key) != logged.get(key):
            # What a DDL rewrote comes without an event: the log then has what was written before.
            rewritten = any(v.lossy for v in truth.versions[key] if v.commit_ts <= ts)
            what = f"row {key.hex()} is {stored.get(key)!r} in the upstream, {logged.get(key)!r} in the log"
            assert rewritten, f"{'.'.join(name)} ({physical}): {what}"
            assert told.get(key) == logged.get(key), f"{'.'.join(name)} ({physical}), which a DDL rewrote: {what}"
