"""Tables that come, go, are renamed and exchanged while groups capture them: which rows get into which partition of the log.

`Run` is a plain model around the real `TableSpans` and `Bounds`: its rows are all (physical table, handle, commit_ts) that could be.
A partition keeps a row if one of its spans covers it and none of its bounds leaves it to another. Each row of a wanted table must be
kept by the partition where it belongs, and by no other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.support.capture.table_changes import version
from tidemill.capture.tikv.receive.matcher import FOREVER
from tidemill.capture.tikv.regions.actions import Span
from tidemill.capture.tikv.sort.bounds import Bound, Bounds
from tidemill.capture.tikv.tables import Moved, TableSpans
from tidemill.changelog.spread import RECORD_PREFIX, HandleRange, Layout, SplitTable, partition_of
from tidemill.tidb.codec import decode_bytes
from tidemill.tidb.keys import record_prefix
from tidemill.tidb.schema.tracking.versions import Change, PhysicalChange, SchemaSnapshot, TableVersion, Timeline, physical_change

PARTITIONS, START = 3, 5
KEYS = [struct.pack(">Q", (1 << 63) + n) for n in (10, 20, 30)]
HANDLES = [struct.pack(">Q", (1 << 63) + n) for n in (5, 15, 25, 35)]
RULES: tuple[Callable[[str], bool], ...] = (lambda name: not name.startswith("out"), lambda name: name.startswith("a"))
"""Of tables called a…, b… and out…: the first capture rules, and those after them."""

Tables = dict[int, TableVersion]


@dataclass
class History:
    """What `TableSpans` asks a SchemaHistory for."""

    timeline: Timeline
    resolved_ts: int = START

    def snapshot(self, ts: int) -> SchemaSnapshot:
        return self.timeline.snapshot(ts)

    def next_table_changes(self, from_ts: int, to_ts: int) -> list[PhysicalChange]:
        return [physical_change(switch) for switch in self.timeline.switches(from_ts, to_ts)]


@dataclass
class Log:
    """The bounds of one partition of the log, as `PartitionLog` keeps them."""

    head: int = START
    bounds: Bounds = field(default_factory=Bounds)
    waiting: list[tuple[Span, int]] = field(default_factory=list)  # spans that have ended, and the largest commit_ts that came by them

    def moved_away(self, moved: Moved) -> None:
        self.bounds = self.bounds.above(self.head).with_one(Bound(moved.physical_id, moved.ts, FOREVER, moved.handles))

    def came_back(self, moved: Moved) -> None:
        self.bounds = self.bounds.cut(moved.ts, lambda one: (one.table_id, one.handles) == (moved.physical_id, moved.handles))

    def moved_for_good(self, moved: Moved) -> None:
        last = max(self.head, *(last for _, last in self.waiting), 0)
        cut = self.bounds.cut(last, lambda one: (one.table_id, one.ts) == (moved.physical_id, moved.ts))
        self.bounds = cut.above(self.head)

    def leaves(self, physical_id: int, handle: bytes, ts: int) -> bool:
        return any((one.table_id == physical_id and one.ts < ts <= one.until and _holds(one.handles, handle)) for one in self.bounds._all)


@dataclass
class Group:
    """The process that captures some partitions."""

    owned: tuple[int, ...]
    spans: TableSpans
    live: dict[int, Span] = field(default_factory=dict)
    left: list[Moved] = field(default_factory=list)
    followed: int = START


class Run:
    """One seed. `step` does something anywhere; `finish` brings everything to its end. Both raise AssertionError at a misplaced row."""

    def __init__(self, seed: int, groups: Sequence[tuple[int, ...]], *, split: bool, new_rules: bool) -> None:
        self.random = Random(seed)
        names = self.random.choices(("a", "b", "out"), k=4)
        self.tables: Tables = {
            id_: _version(f"{name}{id_}", id_, [id_] if id_ < 12 else [100 * id_, 100 * id_ + 1], START)
            for id_, name in zip(range(10, 14), names, strict=True)
        }
        self.layout = Layout(0, PARTITIONS, self._splits() if split else ())
        self.history = History(Timeline(START, self.tables, {}))
        self.then: list[tuple[int, Tables]] = [(START, dict(self.tables))]
        self.rules_from = [START]
        self.new_rules = new_rules
        self.dropped: list[TableVersion] = []
        self.now, self.next_id = START, 5000
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.groups = [self._started(owned) for owned in groups]

    def _splits(self) -> tuple[SplitTable, ...]:
        found = []
        for table_id in (10, 11, 12, 13, 1200, 1300, 5010):
            if self.random.random() < 0.5:
                keys = sorted(self.random.sample(KEYS, self.random.choice((1, 2))))
                found.append(SplitTable(table_id, "d.t", tuple(keys), tuple(self.random.sample(range(PARTITIONS), len(keys) + 1))))
        return tuple(found)

    # ------------------------------------------------------------------ what may happen

    def step(self) -> None:
        """One DDL, or one step of one process."""
        chance = self.random.random()
        group = self.random.choice(self.groups)
        if chance < 0.25:
            self.ddl()
        elif chance < 0.4:
            self.now += self.random.randint(0, 5)
            self.history.resolved_ts = self.now
        elif chance < 0.55:
            self.follow(group)
        elif chance < 0.62:
            self.restart(group)
        elif chance < 0.7:
            self.retire(group)
        elif chance < 0.73 and self.new_rules and len(self.rules_from) < len(RULES):
            self.rules_from.append(self.history.resolved_ts)
            for one in list(self.groups):
                self.restart(one)
        else:
            log = self.random.choice(group.owned)
            self.advance(group, log, min(group.followed, self.logs[log].head + self.random.randint(1, 30)))

    def finish(self) -> None:
        """Everything is followed, sealed and ended: no bound is left."""
        for _ in "ended", "all rows that waited then are sealed":
            self.now += 31
            self.history.resolved_ts = self.now
            for group in self.groups:
                self.follow(group)
                for log in group.owned:
                    self.advance(group, log, self.now)
                self.retire(group)
        assert [len(log.bounds.above(log.head)) for log in self.logs] == [0] * PARTITIONS, "bounds add up"

    def ddl(self) -> None:
        """One that changes ids or names."""
        self.now += self.random.randint(1, 9)
        kind = self.random.choices((self._exchange, self._rename, self._drop, self._recover, self._truncate), (45, 20, 10, 10, 15))[0]
        if changes := kind():
            self.history.timeline.add(self.now, sorted(changes, key=lambda change: change.table_id))
            for change in changes:
                if change.after is None:
                    self.tables.pop(change.table_id)
                else:
                    self.tables[change.table_id] = change.after
            self.then.append((self.now, dict(self.tables)))

    def _exchange(self) -> list[Change]:
        parted = [one for one in self.tables.values() if len(one.physical_ids) > 1]
        plain = [one for one in self.tables.values() if len(one.physical_ids) == 1]
        if not parted or not plain:
            return []
        table, other = self.random.choice(parted), self.random.choice(plain)
        part = self.random.choice(table.physical_ids)
        ids = [other.table_id if id_ == part else id_ for id_ in table.physical_ids]
        began = _version(table.table, table.table_id, ids, self.now), _version(other.table, part, [part], self.now)
        return [Change(table, began[0]), Change(other, None), Change(None, began[1])]

    def _rename(self) -> list[Change]:
        table = self.random.choice([*self.tables.values()])
        name = self.random.choice(("a", "b", "out", "out")) + str(self.now)
        return [Change(table, _version(name, table.table_id, table.physical_ids, self.now))]

    def _drop(self) -> list[Change]:
        if len(self.tables) < 3:
            return []
        self.dropped.append(table := self.random.choice([*self.tables.values()]))
        return [Change(table, None)]

    def _recover(self) -> list[Change]:
        if not self.dropped:
            return []
        table = self.dropped.pop(self.random.randrange(len(self.dropped)))
        used = {id_ for one in self.tables.values() for id_ in one.physical_ids}
        if table.table_id in self.tables or not used.isdisjoint(table.physical_ids):
            return []
        name = self.random.choice((table.table, f"a{self.now}", f"out{self.now}"))
        return [Change(None, _version(name, table.table_id, table.physical_ids, self.now))]

    def _truncate(self) -> list[Change]:
        table = self.random.choice([*self.tables.values()])
        self.next_id += 10
        parts = len(table.physical_ids)
        ids = [self.next_id] if parts == 1 else [self.next_id + 1 + i for i in range(parts)]
        return [Change(table, None), Change(None, _version(table.table, self.next_id, ids, self.now))]

    # ------------------------------------------------------------------ a process

    def _started(self, owned: tuple[int, ...]) -> Group:
        """As `Pulling` does."""
        for one in owned:
            self.logs[one].bounds, self.logs[one].waiting = Bounds(), []
        live: dict[int, Span] = {}
        left: list[Moved] = []

        def put(span: Span) -> None:
            live[span.id] = span

        def remove(span_id: int) -> None:
            span = live.pop(span_id)
            self.logs[span.partition].waiting.append((span, self.random.choice((0, self.now, self.now + 30))))

        def moved(move: Moved) -> None:
            if move.old in owned:
                self.logs[move.old].moved_away(move)
            if move.new in owned:
                self.logs[move.new].came_back(move)

        heads = self._heads(owned)
        first = min(*heads, self.history.resolved_ts)
        entries = [rules for ts, rules in zip((0, *self.rules_from[1:]), RULES, strict=False)]
        entries = entries[sum(ts <= first for ts in self.rules_from[1:]) :]
        wants = lambda version: any(rules(version.table) for rules in entries)  # noqa: E731
        spans = TableSpans(self.layout, put, remove, moved, wants, owned, put, left.append)
        group = Group(owned, spans, live, left, self.history.resolved_ts)
        spans.begin(self.history, heads)  # type: ignore[arg-type]
        if len(entries) > 1:
            newest = entries[-1]
            spans.narrow(lambda version: newest(version.table), self.history, self.rules_from[-1])  # type: ignore[arg-type]
        self._act(group)
        return group

    def restart(self, group: Group) -> None:
        """The process is killed; another one goes on."""
        self.groups[self.groups.index(group)] = self._started(group.owned)

    def follow(self, group: Group) -> None:
        """Follow the schema to where it is known."""
        changes = self.history.next_table_changes(group.followed, self.history.resolved_ts)
        group.spans.follow(changes, self._heads(group.owned))
        group.followed = self.history.resolved_ts
        self.retire(group)

    def retire(self, group: Group) -> None:
        """End what has reached its end."""
        group.spans.retire(self._heads(group.owned))
        self._act(group)

    def _act(self, group: Group) -> None:
        for moved in group.left:
            self.logs[moved.old].moved_for_good(moved)
        group.left.clear()

    def _heads(self, owned: tuple[int, ...]) -> list[int]:
        return [log.head if p in owned else FOREVER for p, log in enumerate(self.logs)]

    # ------------------------------------------------------------------ rows

    def advance(self, group: Group, partition: int, head: int) -> None:
        """Seal a partition up to `head`, and compare what it keeps with what belongs there."""
        log = self.logs[partition]
        live = [(_ids(span), span.checkpoint, head) for span in group.live.values() if span.partition == partition]
        waiting = [(_ids(span), span.checkpoint, last) for span, last in log.waiting]
        for ts in range(log.head + 1, head + 1):
            tables = next(tables for began, tables in reversed(self.then) if began < ts)
            wants = RULES[sum(since < ts for since in self.rules_from[1:])]
            for table in tables.values():
                for id_ in table.physical_ids if wants(table.table) else ():
                    for handle in HANDLES:
                        belongs = self._place(table.table_id, handle) == partition
                        come = any(
                            one[0] == id_ and _holds(one[1:], handle) and since < ts <= last
                            for one, since, last in (live if belongs else live + waiting)
                        )
                        kept = come and not log.leaves(id_, handle, ts)
                        assert kept == belongs, f"{table.table} {id_} at {ts} in {partition}: {'lost' if belongs else 'in two'}"
        log.head = max(log.head, head)
        log.waiting = [one for one in log.waiting if one[1] > log.head]

    def _place(self, table_id: int, handle: bytes) -> int:
        split = self.layout.split_of(table_id)
        return split.partition_of(handle) if split is not None else partition_of(table_id, PARTITIONS)


def _version(name: str, table_id: int, physical_ids: Sequence[int], ts: int) -> TableVersion:
    made = version(table_id, *physical_ids, name=name)
    return TableVersion(made.schema, made.schema_id, made.info, made.physical_ids, ts)


def _holds(handles: HandleRange, handle: bytes) -> bool:
    return handles[0] <= handle and (not handles[1] or handle < handles[1])


def _ids(span: Span) -> tuple[int, bytes, bytes]:
    """A span's physical table, and its range of handles."""
    low, high = decode_bytes(span.start)[0], decode_bytes(span.end)[0]
    id_ = struct.unpack(">Q", low[1:9])[0] - (1 << 63)
    return id_, low[RECORD_PREFIX:], high[RECORD_PREFIX:] if high.startswith(record_prefix(id_)) else b""
