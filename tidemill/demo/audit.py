"""A consumer that trusts nothing: it reads Open Protocol messages, holds them against the guarantees, and rebuilds the tables.

What is checked, for the events of one topic partition in their order, repeats aside:
- rows come in commit order for their table;
- no row comes at or below a resolved ts or a DDL that was sent before, and none above a DDL comes before it;
- DDLs come in the order of their ts;
and over all partitions: each row's key stays in one partition, every DDL and every last resolved ts is in all of them.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tidemill.demo.delivered import Delivered
from tidemill.demo.replica import Name, Replica, RowChange, Value, plain
from tidemill.errors import MalformedMessage
from tidemill.events import DdlEvent
from tidemill.protocols.open.decode import decode
from tidemill.protocols.open.events import Column, DdlMessage, Event, ResolvedMessage, RowEvent

SHOWN = 100


@dataclass
class Partition:
    """What has been seen in one topic partition."""

    seen: set[bytes] = field(default_factory=set)
    newest: dict[Name, int] = field(default_factory=dict)  # commit_ts of the last first delivery, by table
    resolved: int = 0
    ddls: list[DdlMessage] = field(default_factory=list)


@dataclass
class Audit:
    """Takes messages; afterwards holds rows, DDLs, and what was wrong.

    `check_homes`: each row has to stay in one partition, as all dispatchers but `ts` promise.
    """

    check_homes: bool = True
    problems: list[str] = field(default_factory=list)
    rows: list[RowChange] = field(default_factory=list)
    ddls: set[DdlMessage] = field(default_factory=set)
    repeats: int = 0
    resolved_events: int = 0
    messages: int = 0
    partitions: dict[tuple[str, int], Partition] = field(default_factory=lambda: defaultdict(Partition))
    _homes: dict[tuple[str, Name, tuple[Value, ...]], int] = field(default_factory=dict)

    def take(self, messages: Iterable[Delivered]) -> None:
        """Read messages, those of one partition in their order. Raises MalformedMessage naming the partition."""
        for message in messages:
            self.messages += 1
            partition = self.partitions[message.topic, message.partition]
            for event in _events(message):
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
        change = row_change(row)
        self.rows.append(change)
        if self.check_homes:
            self._home(message, name, change)

    def _home(self, message: Delivered, name: Name, change: RowChange) -> None:
        image = change.after if change.after is not None else change.before
        if not change.handle or image is None:
            return
        key = message.topic, name, tuple(image.get(n) for n in change.handle)
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

    def rebuild(self, replica: Replica, history: Sequence[DdlEvent]) -> None:
        """Apply rows and the DDLs' effects in order of ts, rows first. A DDL that was not delivered has no effect, and that shows."""
        delivered = {(ddl.ts, ddl.query) for ddl in self.ddls}
        effects = [event for event in history if (event.ts, event.query) in delivered]
        rows = sorted(self.rows, key=lambda row: row.ts)
        at = 0
        for event in effects:
            while at < len(rows) and rows[at].ts <= event.ts:
                replica.apply_row(rows[at])
                at += 1
            replica.apply_ddl(event)
        for row in rows[at:]:
            replica.apply_row(row)


def _events(message: Delivered) -> list[Event]:
    try:
        return decode(message.key or b"", message.value or b"")
    except MalformedMessage as error:
        raise MalformedMessage(f"topic {message.topic}, partition {message.partition}: {error.message}") from error


def row_change(row: RowEvent) -> RowChange:
    """A row event in the form that replicas take."""
    return RowChange(
        ts=row.ts,
        name=(row.schema, row.table),
        partition_id=row.partition,
        handle=tuple(sorted(column.name for column in row.after or row.before if column.handle)),
        before=_image(row.before),
        after=_image(row.after),
    )


def _image(columns: Sequence[Column]) -> dict[str, Value] | None:
    return {column.name: plain(column.value) for column in columns} if columns else None
