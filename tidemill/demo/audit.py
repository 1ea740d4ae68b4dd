"""Checks a delivery: reads its Open Protocol messages, holds them against the guarantees, and rebuilds the tables as `tidemill consume`
does.

What is checked, for the events of one topic partition in their order, repeats aside:
- rows come in commit order for their table;
- no row comes at or below the ts of a resolved event or DDL that came before it, and no row above a DDL's ts comes before the DDL;
- DDLs come in the order of their ts;
and over all partitions: each row's key stays in one partition, every DDL and every last resolved ts is in all of them.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tidemill.consumer.order.ordering import Ordering, Transaction
from tidemill.consumer.order.pending import Pending
from tidemill.consumer.order.spill import TemporaryFiles
from tidemill.consumer.reading import read_at, reader
from tidemill.consumer.tables.sqlite import SqliteTables
from tidemill.demo.compare import Name
from tidemill.demo.delivered import Delivered
from tidemill.protocols.open.events import DdlMessage, ResolvedMessage, RowEvent, RowKind, Value

SHOWN = 100
_QUOTA = 512 << 20
_READ = reader()


@dataclass
class Partition:
    """What has been seen in one topic partition."""

    seen: set[bytes] = field(default_factory=set)
    newest: dict[Name, int] = field(default_factory=dict)  # commit_ts of the last first delivery, by table
    resolved: int = 0
    messages: int = 0
    ddls: list[DdlMessage] = field(default_factory=list)


@dataclass
class Audit:
    """Takes messages, and keeps their rows, their DDLs and the problems found.

    `check_homes`: each row has to stay in one partition, as all dispatchers but `ts` promise.
    """

    check_homes: bool = True
    problems: list[str] = field(default_factory=list)
    rows: list[RowEvent] = field(default_factory=list)
    ddls: set[DdlMessage] = field(default_factory=set)
    repeats: int = 0
    resolved_events: int = 0
    messages: int = 0
    partitions: dict[tuple[str, int], Partition] = field(default_factory=lambda: defaultdict(Partition))
    ordering: Ordering = field(default_factory=lambda: Ordering(Pending(_QUOTA, TemporaryFiles())))
    _homes: dict[tuple[str, Name, tuple[Value, ...]], int] = field(default_factory=dict)

    def take(self, messages: Iterable[Delivered]) -> None:
        """Read messages, those of one partition in their order. Raises MalformedMessage naming the partition."""
        for message in messages:
            self.messages += 1
            source = message.topic, message.partition
            partition = self.partitions[source]
            if source not in self.ordering.partitions:
                self.ordering.join(source)
            events = read_at(_READ, *source, partition.messages, message.key, message.value)
            self.ordering.take(source, partition.messages, events, len(message.value or b""))
            partition.messages += 1
            for event in events:
                match event:
                    case RowEvent():
                        self._row(message, partition, event)
                    case DdlMessage():
                        self._ddl(message, partition, event)
                    case ResolvedMessage():
                        self.resolved_events += 1
                        partition.resolved = max(partition.resolved, event.ts)

    def _row(self, message: Delivered, partition: Partition, row: RowEvent) -> None:
        digest = hashlib.blake2b(repr(row).encode(errors="surrogatepass"), digest_size=16).digest()
        if digest in partition.seen:
            self.repeats += 1
            return
        partition.seen.add(digest)
        name, ts = (row.schema, row.table), row.ts
        what = f"{message.topic}[{message.partition}]: a row of {'.'.join(name)} at {ts}"
        if ts <= partition.resolved:
            self._problem(f"{what} came after resolved {partition.resolved}")
        if partition.ddls and ts <= partition.ddls[-1].ts:
            self._problem(f"{what} came after the DDL at {partition.ddls[-1].ts}: {partition.ddls[-1].query}")
        if ts < partition.newest.get(name, 0):
            self._problem(f"{what} came after one at {partition.newest[name]}")
        partition.newest[name] = max(ts, partition.newest.get(name, 0))
        self.rows.append(row)
        if self.check_homes:
            self._home(message, name, row)

    def _home(self, message: Delivered, name: Name, row: RowEvent) -> None:
        handle = tuple(column.value for column in row.after or row.before if column.handle)
        if not handle:
            return
        key = message.topic, name, handle
        if self._homes.setdefault(key, message.partition) != message.partition:
            self._problem(
                f"{message.topic}[{message.partition}]: row {key[2]} of {'.'.join(name)} was in partition {self._homes[key]} before"
            )

    def _ddl(self, message: Delivered, partition: Partition, ddl: DdlMessage) -> None:
        if ddl in partition.ddls:
            self.repeats += 1
            return
        what = f"{message.topic}[{message.partition}]: the DDL at {ddl.ts} ({ddl.query})"
        if partition.ddls and ddl.ts < partition.ddls[-1].ts:
            self._problem(f"{what} came after the one at {partition.ddls[-1].ts}")
        if ddl.ts <= partition.resolved:
            self._problem(f"{what} came after resolved {partition.resolved}")
        for name, ts in partition.newest.items():
            if ts > ddl.ts:
                self._problem(f"{what} came after a row of {'.'.join(name)} at {ts}")
        partition.ddls.append(ddl)
        self.ddls.add(ddl)

    def _problem(self, text: str) -> None:
        if len(self.problems) < SHOWN:
            self.problems.append(text)

    def finish(self) -> None:
        """Checks over all partitions."""
        for topic in sorted({t for t, _ in self.partitions}):
            mine = {p: state for (t, p), state in self.partitions.items() if t == topic}
            if len({frozenset(p.ddls) for p in mine.values()}) > 1:
                self._problem(f"{topic}: not every DDL is in every partition: { {n: len(p.ddls) for n, p in mine.items()} }")
            if len({p.resolved for p in mine.values()}) > 1:
                self._problem(f"{topic}: the partitions end at different resolved ts: { {n: p.resolved for n, p in mine.items()} }")

    def split_updates(self) -> int:
        """How many updates came as two events, a delete and an insert: those that change a unique key."""
        ways: dict[tuple[object, ...], set[RowKind]] = defaultdict(set)
        for row in self.rows:
            handle = row.row_id or tuple(column.value for column in row.after or row.before if column.handle)
            ways[row.schema, row.table, row.partition, row.ts, handle].add(row.kind)
        return sum(kinds >= {RowKind.DELETE, RowKind.INSERT} for kinds in ways.values())

    def rebuild(self, tables: SqliteTables) -> None:
        """Apply what was delivered as a consumer does: rows and DDLs from messages alone, in the order of the source."""
        upto = self.ordering.ready()
        if upto is None:
            return
        for step in self.ordering.drain(upto):
            if isinstance(step, Transaction):
                tables.rows(step.rows)
            else:
                tables.ddl(step)
        tables.commit(self.ordering.flushed(upto))
