"""Versions of tables over time: which description to use for a row with a given commit ts."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property

from tidemill.errors import SchemaError
from tidemill.tidb.schema.model import DBInfo, TableInfo
from tidemill.tso import describe


@dataclass(frozen=True, slots=True)
class TableVersion:
    """The table for rows with from_ts < commit_ts <= to_ts. `to_ts` is None while no later version is known."""

    schema: str
    schema_id: int
    info: TableInfo
    physical_ids: tuple[int, ...]
    from_ts: int
    to_ts: int | None = None

    def __hash__(self) -> int:
        return hash((self.info.id, self.from_ts))

    @property
    def table(self) -> str:
        """The table's name."""
        return self.info.name

    @property
    def table_id(self) -> int:
        """The logical table id."""
        return self.info.id

    @property
    def name(self) -> tuple[str, str]:
        """Schema and table."""
        return self.schema, self.info.name

    def named(self, name: tuple[str, str]) -> TableVersion:
        """Return the same table under another schema and name."""
        return self if name == self.name else replace(self, schema=name[0], info=replace(self.info, name=name[1]))


@dataclass(frozen=True, slots=True)
class Change:
    """One table at a switch: the version that ends and the version that begins, or None."""

    before: TableVersion | None
    after: TableVersion | None

    @property
    def table_id(self) -> int:
        """The logical id, the same on both sides."""
        version = self.before or self.after
        assert version is not None
        return version.table_id


@dataclass(frozen=True, slots=True)
class Switch:
    """All that changes for rows past `ts`."""

    ts: int
    changes: tuple[Change, ...]

    @property
    def ended(self) -> tuple[TableVersion, ...]:
        """Versions that end here."""
        return tuple(c.before for c in self.changes if c.before is not None)

    @property
    def begun(self) -> tuple[TableVersion, ...]:
        """Versions that begin here."""
        return tuple(c.after for c in self.changes if c.after is not None)


@dataclass(frozen=True, slots=True)
class PhysicalChange:
    """What a switch at `ts` means for subscriptions.

    Rows of the added ids are wanted past `ts`: subscribe them from `ts`. Rows of the removed ids are wanted up to `ts`. `begun` and
    `ended` are the table versions, also where only a name or a column changed.
    """

    ts: int
    added: tuple[int, ...]
    removed: tuple[int, ...]
    begun: tuple[TableVersion, ...]
    ended: tuple[TableVersion, ...]


@dataclass(frozen=True)
class SchemaSnapshot:
    """The schema for rows with a commit ts just past `ts`."""

    ts: int
    tables: Mapping[int, TableVersion]  # by logical id; views and sequences too
    databases: Mapping[int, DBInfo]
    known_ids: Set[int] = field(repr=False)  # every physical id that the history has seen

    @cached_property
    def by_physical(self) -> Mapping[int, TableVersion]:
        """Versions by the ids under which their rows are stored."""
        return {physical: version for version in self.tables.values() for physical in version.physical_ids}

    @cached_property
    def retired(self) -> Set[int]:
        """Physical ids that are known but not used at `ts`. Their rows are copies, or belong to dropped or later tables."""
        return self.known_ids - self.by_physical.keys()

    @cached_property
    def by_name(self) -> Mapping[tuple[str, str], TableVersion]:
        """Versions by schema and table."""
        return {version.name: version for version in self.tables.values()}


_KEPT_SNAPSHOTS = 4


class Timeline:
    """The switches of all tables since a base, in order of ts."""

    def __init__(self, base_ts: int, tables: Mapping[int, TableVersion], databases: Mapping[int, DBInfo]) -> None:
        self.base_ts = base_ts
        self._base = dict(tables)
        self._databases: list[tuple[int, dict[int, DBInfo]]] = [(base_ts, dict(databases))]
        self._switches: list[Switch] = []
        self._switch_ts: list[int] = []
        self._known: set[int] = set()
        self._snapshots: OrderedDict[int, dict[int, TableVersion]] = OrderedDict()

    def know(self, ids: Iterable[int]) -> None:
        """Note physical ids that have been seen, used or not."""
        self._known.update(ids)

    def knows(self, ids: Iterable[int]) -> bool:
        """Return whether any of these physical ids has been seen."""
        return not self._known.isdisjoint(ids)

    def add(self, ts: int, changes: Iterable[Change]) -> tuple[Change, ...]:
        """Append the changes of one transaction. Transactions with one ts share a switch. Returns them with `to_ts` set."""
        closed = tuple(Change(self._close(c.before, ts) if c.before is not None else None, c.after) for c in changes)
        if not closed:
            return ()
        if self._switch_ts and self._switch_ts[-1] == ts:
            self._switches[-1] = Switch(ts, _joined(self._switches[-1].changes, closed))
        else:
            self._switches.append(Switch(ts, closed))
            self._switch_ts.append(ts)
        self._snapshots.pop(len(self._switches), None)
        return closed

    def _close(self, version: TableVersion, ts: int) -> TableVersion:
        """Set the end of a version wherever it is kept, and return it."""
        closed = replace(version, to_ts=ts)
        table_id = version.table_id
        if version.from_ts <= self.base_ts:
            self._base[table_id] = closed
        else:
            index = bisect_left(self._switch_ts, version.from_ts)
            started = self._switches[index]
            self._switches[index] = Switch(
                started.ts, tuple(Change(c.before, closed) if c.after is version else c for c in started.changes)
            )
        for count, tables in self._snapshots.items():
            if tables.get(table_id) is version:
                self._snapshots[count] = {**tables, table_id: closed}
        return closed

    def set_databases(self, ts: int, databases: Mapping[int, DBInfo]) -> None:
        """Set the databases for rows past `ts`."""
        if self._databases[-1][0] == ts:
            self._databases.pop()
        self._databases.append((ts, dict(databases)))

    def switches(self, from_ts: int, to_ts: int) -> list[Switch]:
        """Return the switches in (from_ts, to_ts]."""
        return self._switches[bisect_right(self._switch_ts, from_ts) : bisect_right(self._switch_ts, to_ts)]

    def snapshot(self, ts: int) -> SchemaSnapshot:
        """Return the schema just past `ts`. Raises SchemaError for a ts before the base."""
        if ts < self.base_ts:
            raise SchemaError(f"no schema is known at {describe(ts)}: the history begins at {describe(self.base_ts)}")
        tables = self._tables(bisect_right(self._switch_ts, ts))
        index = bisect_right([at for at, _ in self._databases], ts) - 1
        return SchemaSnapshot(ts, tables, self._databases[index][1], frozenset(self._known))

    def _tables(self, count: int) -> dict[int, TableVersion]:
        """Return the tables after the first `count` switches, made from the nearest kept state before."""
        if count in self._snapshots:
            self._snapshots.move_to_end(count)
            return self._snapshots[count]
        nearest = max((n for n in self._snapshots if n < count), default=0)
        tables = dict(self._snapshots[nearest] if nearest else self._base)
        for switch in self._switches[nearest:count]:
            for version in switch.ended:
                del tables[version.table_id]
            for version in switch.begun:
                tables[version.table_id] = version
        self._snapshots[count] = tables
        while len(self._snapshots) > _KEPT_SNAPSHOTS:
            self._snapshots.popitem(last=False)
        return tables

    def forget(self, ts: int) -> None:
        """Move the base to `ts`: drop what only rows at or before it need."""
        if ts <= self.base_ts:
            return
        count = bisect_right(self._switch_ts, ts)
        self._base = dict(self._tables(count))
        self._snapshots.clear()
        del self._switches[:count], self._switch_ts[:count]
        at = bisect_left([at for at, _ in self._databases], ts + 1) - 1
        self._databases = [(ts, self._databases[at][1]), *self._databases[at + 1 :]]
        self.base_ts = ts


def _joined(first: tuple[Change, ...], second: tuple[Change, ...]) -> tuple[Change, ...]:
    """Join the changes of two transactions with one commit ts. A version that exists only between them is left out."""
    changes = list(first)
    for change in second:
        started = next((i for i, c in enumerate(changes) if change.before and c.after and c.after.table_id == change.before.table_id), None)
        if started is None:
            changes.append(change)
        elif changes[started].before or change.after:
            changes[started] = Change(changes[started].before, change.after)
        else:
            del changes[started]
    return tuple(changes)


def physical_change(switch: Switch) -> PhysicalChange:
    """Return what a switch means for subscriptions."""
    before = {physical for version in switch.ended for physical in version.physical_ids}
    after = {physical for version in switch.begun for physical in version.physical_ids}
    return PhysicalChange(switch.ts, tuple(sorted(after - before)), tuple(sorted(before - after)), switch.begun, switch.ended)
