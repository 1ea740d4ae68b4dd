"""Initial loads: tables as of one ts, in the log beside its changes.

    snapshot/<S>/plan.json                    which tables, and the key ranges that they are read in
    snapshot/<S>/<table id>/<k>of<n>.arrow    RawChange rows of one range with commit_ts = start_ts = S, in key order
    snapshot/<S>/complete.json                all parts are there

S has 20 digits; the table id is the logical one. A table's ranges ascend by physical id and key. A part appears atomically, under a name
that its plan fixes, so a load that is started again after a crash reads only the missing parts. No batch of a changefeed passes S before
all parts are there. The rows are delivered at S, after all earlier changes, as inserts. Parts are never removed one by one, so a complete
load stays complete: complete.json saves listing thousands of folders. A log without that file holds the same data; its capture adds the
file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from tidemill import statefile
from tidemill.changelog import log_format
from tidemill.changelog.files.segment import bounded, write_file
from tidemill.changelog.storage.open import Storage
from tidemill.errors import LogCorrupt, redact
from tidemill.events import RAW_CHANGE

PLAN = "plan.json"
COMPLETE = "complete.json"
REQUESTS = f"{log_format.SNAPSHOT}/requests"
"""Requests of `tidemill resync` to read a table again."""

_TS = re.compile(r"\d{20}")

Range = tuple[bytes, bytes]
"""Raw record keys [start, end)."""


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """A table and the ranges that hold its rows; at least one."""

    table_id: int
    name: str  # db.table, for messages
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """One range of a table: file k of n, k from 1."""

    ts: int
    table_id: int
    k: int
    n: int
    start: bytes
    end: bytes

    @property
    def folder(self) -> str:
        return f"{folder_of(self.ts)}/{self.table_id}"

    @property
    def name(self) -> str:
        return f"{self.k}of{self.n}.arrow"


@dataclass(frozen=True, slots=True)
class Plan:
    """The tables to read at `ts`."""

    ts: int
    tables: tuple[PlannedTable, ...]

    def parts(self) -> list[Part]:
        """Return all parts, in the order of tables and ranges."""
        return [
            Part(self.ts, table.table_id, k, len(table.ranges), start, end)
            for table in self.tables
            for k, (start, end) in enumerate(table.ranges, 1)
        ]

    def to_json(self) -> str:
        tables = [{"id": t.table_id, "name": t.name, "ranges": [[start.hex(), end.hex()] for start, end in t.ranges]} for t in self.tables]
        return json.dumps({"ts": self.ts, "tables": tables}) + "\n"

    @classmethod
    def from_json(cls, data: bytes, name: str) -> Plan:
        """Parse a plan. Raises LogCorrupt naming the file."""
        fields = statefile.read(data, name)
        tables = tuple(PlannedTable(t.integer("id"), t.text("name"), _ranges(t)) for t in fields.parts("tables"))
        return cls(fields.integer("ts", 1), tables)


def _ranges(table: statefile.Fields) -> tuple[Range, ...]:
    try:
        return tuple((bytes.fromhex(start), bytes.fromhex(end)) for start, end in table.items("ranges"))
    except (TypeError, ValueError) as error:
        raise table.broken(f"a range of {table.text('name')} is not two keys in hex: {error}") from None


def folder_of(ts: int) -> str:
    """Return the folder of the load at a ts."""
    return f"{log_format.SNAPSHOT}/{ts:020d}"


def timestamps(storage: Storage) -> list[int]:
    """Return the ts of all loads, complete or not, oldest first."""
    return sorted(int(name) for name in storage.subfolders(log_format.SNAPSHOT) if _TS.fullmatch(name))


def read_plan(storage: Storage, ts: int) -> Plan | None:
    """Return the plan of a ts; None if there is none. Raises LogCorrupt."""
    name = f"{folder_of(ts)}/{PLAN}"
    data = storage.read(name)
    if data is None:
        return None
    plan = Plan.from_json(data, storage.path(name))
    if plan.ts != ts:
        raise LogCorrupt(f"{redact(storage.path(name))} is the plan of another ts, {plan.ts}", hint=statefile.LOG_FILE.hint)
    return plan


def plans(storage: Storage, start_ts: int = 0) -> list[Plan]:
    """Return all plans at or above the log's start, oldest first. Raises LogCorrupt."""
    return list(_plans(storage, start_ts))


def _plans(storage: Storage, start_ts: int) -> Iterator[Plan]:
    return (plan for ts in timestamps(storage) if ts >= start_ts and (plan := read_plan(storage, ts)) is not None)


def next_plan(storage: Storage, from_ts: int) -> Plan | None:
    """Return the first plan above `from_ts`. A batch ends just before its ts, and the next batch has only the tables."""
    return next(_plans(storage, from_ts + 1), None)


def unfinished(storage: Storage, start_ts: int = 0) -> list[Plan]:
    """Return the plans as `plans` does, without those noted as complete; these are not read."""
    found = (ts for ts in timestamps(storage) if ts >= start_ts and not is_complete(storage, ts))
    return [plan for ts in found if (plan := read_plan(storage, ts)) is not None]


def write_plan(storage: Storage, plan: Plan) -> None:
    """Write a plan: from now on no changefeed passes its ts before its parts are there."""
    storage.replace(f"{folder_of(plan.ts)}/{PLAN}", plan.to_json().encode())


def missing(storage: Storage, plan: Plan) -> list[Part]:
    """Return the parts that are still to be read. It lists all tables' folders once."""
    there = set(storage.below(folder_of(plan.ts)))
    return [part for part in plan.parts() if f"{part.table_id}/{part.name}" not in there]


def is_complete(storage: Storage, ts: int) -> bool:
    """Return whether the plan was noted as complete. Without a note, `missing` tells."""
    return storage.read(f"{folder_of(ts)}/{COMPLETE}") is not None


def note_complete(storage: Storage, ts: int) -> None:
    """Note that no part is missing, so that nobody needs to list the parts again."""
    storage.replace(f"{folder_of(ts)}/{COMPLETE}", json.dumps({"ts": ts}).encode() + b"\n")


def write_part(storage: Storage, part: Part, batches: Iterable[pa.RecordBatch], compression: str = "none") -> str:
    """Write a part atomically; return its path. `batches`: RAW_CHANGE rows in key order. Raises DiskLow."""
    draft = storage.draft(part.folder)
    try:
        cut = (piece for batch in batches for piece in bounded(batch))
        write_file(draft, storage.path(part.folder), cut, RAW_CHANGE, compression)
        draft.publish(part.name)
    finally:
        draft.discard()
    storage.settle(part.folder)
    return storage.path(f"{part.folder}/{part.name}")


def paths(storage: Storage, plan: Plan) -> Mapping[int, tuple[str, ...]]:
    """Return the files of each table, in the order of their rows."""
    found: dict[int, list[str]] = {table.table_id: [] for table in plan.tables}
    for part in plan.parts():
        found[part.table_id].append(storage.path(f"{part.folder}/{part.name}"))
    return {table_id: tuple(files) for table_id, files in found.items()}


def remove(storage: Storage, ts: int) -> None:
    """Remove the load of a ts, the plan first."""
    storage.delete(f"{folder_of(ts)}/{PLAN}")
    storage.delete_folder(folder_of(ts))
