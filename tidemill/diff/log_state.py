"""The rows of tables in a change log as of one ts: of each key the last change, over what an initial load brought."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.changelog import initial_load
from tidemill.changelog.files.segment import check_columns, read_batch
from tidemill.changelog.log_format import Affinity
from tidemill.changelog.reader import LogReader, open_segment
from tidemill.changelog.spread import PARTITION_BY, home_of
from tidemill.events import RAW_CHANGE, Op
from tidemill.tidb.keys import physical_table_id
from tidemill.tso import MAX_TS

COMPACT_ROWS = 1 << 20
"""Keys that wait before those of older changes are dropped."""
PREFIX = 9
"""Bytes of a key that name its physical table."""
_LONGEST = (1 << 31) - 1
"""No key is longer. Arrow's binary_slice is told of it: without an end it fails for an even number of rows."""
_KEYS = pa.schema([("key", pa.binary()), ("commit_ts", pa.uint64()), ("op", pa.uint8()), ("place", pa.uint64())])


@dataclass(frozen=True)
class Physical:
    """Where the rows of a physical table are. `base_ts`: changes at or below it do not count, because `loaded` has the table as of it."""

    table: int  # the number of the compared table
    base_ts: int
    loaded: tuple[str, ...] = ()
    last_ts: int = MAX_TS  # it is no longer the table's after that


@dataclass(frozen=True)
class LogPart:
    """Tables whose changes are in the same files."""

    ts: int
    tables: Mapping[int, Physical]  # by physical id
    paths: tuple[str, ...]
    keep_deleted: bool = False
    """Rows that are gone are given too."""
    by_handle: bool = False
    """A row is the same in whichever of the physical tables it is: TiDB moved rows between them without telling of it."""


def loads(reader: LogReader, ts: int) -> dict[int, tuple[int, tuple[str, ...]]]:
    """Return the newest load of each physical table at or below ts: its ts and its files."""
    found: dict[int, tuple[int, tuple[str, ...]]] = {}
    for plan in initial_load.plans(reader.storage, reader.start_ts):
        if plan.ts > ts:
            continue
        files: dict[int, list[str]] = {}
        for part in plan.parts():
            files.setdefault(physical_table_id(part.start), []).append(reader.storage.path(f"{part.folder}/{part.name}"))
        found |= {physical: (plan.ts, tuple(paths)) for physical, paths in files.items()}
    return found


@dataclass(frozen=True)
class Wanted:
    """A table: the logical ids under which its physical tables ever were, and these."""

    logical: frozenset[int]
    physical: Mapping[int, Physical]
    touched_only: bool = False
    by_handle: bool = False


def parts(reader: LogReader, ts: int, tables: Iterable[Wanted]) -> list[LogPart]:
    """Divide tables into parts by the log partitions that hold their changes."""
    grouped: dict[tuple[frozenset[int], bool, int], dict[int, Physical]] = {}
    for number, table in enumerate(tables):
        alone = number + 1 if table.by_handle else 0
        grouped.setdefault((_homes(reader, table.logical, ts), table.touched_only, alone), {}).update(table.physical)
    chains = {
        partition: reader.chain(partition, reader.identity.start_ts, ts)
        for partition in {p for homes, _, _ in grouped for p in homes}
        if ts > reader.identity.start_ts
    }
    found = []
    for (homes, touched_only, alone), physical in grouped.items():
        least = min(one.base_ts for one in physical.values())
        paths = tuple(path for p in sorted(homes) for i in chains.get(p, ()) if i.to_ts > least for path in i.parts)
        found.append(LogPart(ts, physical, paths, touched_only, alone > 0))
    return found


def _homes(reader: LogReader, logical: Iterable[int], ts: int) -> frozenset[int]:
    """Return the log partitions in which changes of a table may be, up to ts."""
    identity = reader.identity
    layouts = [identity.layout_at(at) for at in (identity.start_ts, *identity.switches(identity.start_ts, ts))]
    is_spread = identity.affinity is Affinity.KEY or identity.split_tables or any(layout.split_tables for layout in layouts)
    if is_spread or identity.partition_by != PARTITION_BY:
        return frozenset(range(identity.partitions))
    return frozenset(home_of(id_, layout) for id_ in logical for layout in layouts)


@dataclass(frozen=True)
class State:
    """Some rows of a table: their keys and their values. `gone`: they are deleted, and the values are those of before."""

    table: int
    keys: pa.Array
    values: pa.Array
    gone: bool


def state(part: LogPart) -> Iterator[State]:
    """Yield the rows of a part's tables. The files are read twice: for the keys, and for the values that count."""
    last = _last_changes(part)
    for at, (begin, batch) in enumerate(_batches(part)):
        chosen = last.get(at)
        if chosen is not None:
            yield from _states(part, batch.take(pa.array(np.sort(chosen - np.uint64(begin)))))


def _states(part: LogPart, batch: pa.RecordBatch) -> Iterator[State]:
    there = pc.equal(batch.column("op"), int(Op.PUT))
    yield from _by_table(part, batch.filter(there), "value", gone=False)
    if part.keep_deleted:
        yield from _by_table(part, batch.filter(pc.and_(pc.invert(there), batch.column("old_value").is_valid())), "old_value", gone=True)


def _by_table(part: LogPart, batch: pa.RecordBatch, values: str, *, gone: bool) -> Iterator[State]:
    numbers = np.array([part.tables[physical].table for physical in batch.column("table_id").to_pylist()], np.int64)
    for number in np.unique(numbers).tolist():
        mine = pa.array(numbers == number)
        yield State(number, batch.column("key").filter(mine), batch.column(values).filter(mine), gone)


def _last_changes(part: LogPart) -> dict[int, np.ndarray]:
    """Return, by the number of the batch, the places of the rows that are the last change of their key."""
    waiting: list[pa.Table] = []
    count, kept = 0, 0
    begins: list[int] = []
    for begin, batch in _batches(part):
        begins.append(begin)
        n = batch.num_rows
        places = pa.array(np.arange(begin, begin + n, dtype=np.uint64))
        key = pc.binary_slice(batch.column("key"), PREFIX, _LONGEST) if part.by_handle else batch.column("key")
        waiting.append(pa.table([key, batch.column("commit_ts"), batch.column("op"), places], schema=_KEYS))
        count += n
        if count > max(COMPACT_ROWS, 2 * kept):
            waiting = [_newest(waiting)]
            count = kept = waiting[0].num_rows
    if not waiting:
        return {}
    places = np.sort(_newest(waiting)["place"].to_numpy())
    homes = np.searchsorted(np.array(begins, np.uint64), places, side="right") - 1
    edges = np.flatnonzero(np.diff(homes)) + 1
    return {int(homes[group[0]]): places[group] for group in np.split(np.arange(len(places)), edges) if len(group)}


def _newest(waiting: Sequence[pa.Table]) -> pa.Table:
    # A row that moves within one transaction is deleted and put: the put counts, so it comes last.
    table = pa.concat_tables(waiting).sort_by([("commit_ts", "ascending"), ("op", "descending")])
    found = table.group_by("key", use_threads=False).aggregate([(name, "last") for name in _KEYS.names[1:]])
    return pa.table([found["key"], *(found[f"{name}_last"] for name in _KEYS.names[1:])], schema=_KEYS)


def _batches(part: LogPart) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield what the files hold of the part, each batch with the number of its first row."""
    begin = 0
    wanted = pa.array(list(part.tables), pa.int64())
    files = [(path, True) for one in part.tables.values() for path in one.loaded] + [(path, False) for path in part.paths]
    for path, is_load in files:
        reader = open_segment(path)
        check_columns(reader, RAW_CHANGE, path)
        for number in range(reader.num_record_batches):
            batch = read_batch(reader, number, path)
            batch = batch.filter(pc.is_in(batch.column("table_id"), wanted))
            if batch.num_rows and not is_load:
                physical = [part.tables[id_] for id_ in batch.column("table_id").to_pylist()]
                bases = np.array([one.base_ts for one in physical], np.uint64)
                ends = np.array([min(one.last_ts, part.ts) for one in physical], np.uint64)
                commits = batch.column("commit_ts").to_numpy()
                batch = batch.filter(pa.array((commits > bases) & (commits <= ends)))
            if batch.num_rows:
                yield begin, batch
                begin += batch.num_rows
