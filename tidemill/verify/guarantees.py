"""Checks the five guarantees of the Open Protocol document on the events of topics. Pure.

1. In each partition, the first deliveries of a table's rows are in commit order.
2. Every DDL, and the last resolved ts, is in every partition of a topic.
3. All events of a row are in one partition, unless rows are dispatched by ts.
4. No new event comes at or below a resolved ts, or on the wrong side of a DDL of its table.
5. A transaction has one event per row. An update of a key may be two: a delete, then an insert.

Repeats are allowed everywhere: delivery is at least once. Two hashes are kept per row, about 200 bytes.
"""

from __future__ import annotations

import enum
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tidemill.protocols.open.events import DdlMessage, Event, ResolvedMessage, RowEvent, RowKind

Name = tuple[str, str]
SHOWN = 100
_SPLIT = (RowKind.DELETE, RowKind.INSERT)


class Guarantee(enum.Enum):
    """The guarantee that a problem breaks; the values are the numbers above."""

    COMMIT_ORDER = 1
    EVERYWHERE = 2
    ONE_PARTITION = 3
    RESOLVED = 4
    ONE_EVENT = 5


@dataclass(frozen=True, slots=True)
class Problem:
    guarantee: Guarantee
    text: str

    def __str__(self) -> str:
        return f"{self.guarantee.name.lower().replace('_', '-')}: {self.text}"


@dataclass(slots=True)
class _Table:
    """The newest transaction of a table in one partition, counting first deliveries."""

    ts: int = 0
    kinds: dict[bytes, list[RowKind]] = field(default_factory=dict)  # by row


@dataclass(slots=True)
class _Partition:
    resolved: int = 0
    seen: set[bytes] = field(default_factory=set)  # rows
    tables: dict[Name, _Table] = field(default_factory=lambda: defaultdict(_Table))
    ddls: list[DdlMessage] = field(default_factory=list)


class Checker:
    """Takes the events of each partition in order. Afterwards `problems` and the counts have the result.

    `homes`: check guarantee 3 (no dispatch by ts). `ddls_everywhere`: true for the Open Protocol; Canal-JSON sends DDLs to partition 0
    only.
    """

    def __init__(self, partitions: Iterable[tuple[str, int]], *, homes: bool = True, ddls_everywhere: bool = True) -> None:
        self._partitions = {source: _Partition() for source in partitions}
        self._homes: dict[bytes, int] = {}
        self._check_homes = homes
        self.ddls_everywhere = ddls_everywhere
        self.problems: list[Problem] = []
        self.broken: Counter[Guarantee] = Counter()
        self.rows = self.ddls = self.resolved = self.repeats = 0

    def take(self, topic: str, partition: int, offset: int, events: Iterable[Event]) -> None:
        """Check the events of one message."""
        state = self._partitions.setdefault((topic, partition), _Partition())
        where = f"{topic}[{partition}] at offset {offset}"
        for event in events:
            match event:
                case RowEvent():
                    self._row(topic, partition, where, state, event)
                case DdlMessage():
                    self._ddl(where, state, event)
                case ResolvedMessage():
                    self.resolved += 1
                    state.resolved = max(state.resolved, event.ts)

    def _row(self, topic: str, partition: int, where: str, state: _Partition, row: RowEvent) -> None:
        digest = _digest(repr(row))
        if digest in state.seen:
            self.repeats += 1
            return
        state.seen.add(digest)
        self.rows += 1
        name = row.schema, row.table
        what = f"{where}: a row of {row.schema}.{row.table} with commit_ts {row.ts}"
        if row.ts <= state.resolved:
            self._broken(Guarantee.RESOLVED, f"{what} comes after resolved {state.resolved}")
        for ddl in state.ddls:
            if row.ts <= ddl.ts and _concerns(ddl, name):
                self._broken(Guarantee.RESOLVED, f"{what} comes after the DDL at {ddl.ts}: {ddl.query}")
        table = state.tables[name]
        if row.ts < table.ts:
            self._broken(Guarantee.COMMIT_ORDER, f"{what} comes after one with {table.ts}")
        identity = _identity(topic, row)
        if identity is None:
            return
        if row.ts > table.ts:
            table.ts, table.kinds = row.ts, {}
        if row.ts == table.ts:
            self._once(what, table.kinds.setdefault(identity, []), row.kind)
        if self._check_homes and self._homes.setdefault(identity, partition) != partition:
            self._broken(Guarantee.ONE_PARTITION, f"{what}: events of this row are in partition {self._homes[identity]}, too")

    def _once(self, what: str, kinds: list[RowKind], kind: RowKind) -> None:
        kinds.append(kind)
        if len(kinds) > 1 and tuple(kinds) != _SPLIT:
            told = ", ".join(k.value for k in kinds)
            self._broken(Guarantee.ONE_EVENT, f"{what}: this row has more than one event in its transaction: {told}")

    def _ddl(self, where: str, state: _Partition, ddl: DdlMessage) -> None:
        if ddl in state.ddls:
            self.repeats += 1
            return
        self.ddls += 1
        what = f"{where}: the DDL at {ddl.ts} ({ddl.query})"
        if state.ddls and ddl.ts < state.ddls[-1].ts:
            self._broken(Guarantee.COMMIT_ORDER, f"{what} comes after the one at {state.ddls[-1].ts}")
        if ddl.ts <= state.resolved:
            self._broken(Guarantee.RESOLVED, f"{what} comes after resolved {state.resolved}")
        for name, table in state.tables.items():
            if table.ts > ddl.ts and _concerns(ddl, name):
                self._broken(Guarantee.RESOLVED, f"{what} comes after a row of {'.'.join(name)} with commit_ts {table.ts}")
        state.ddls.append(ddl)

    def _broken(self, guarantee: Guarantee, text: str) -> None:
        self.broken[guarantee] += 1
        if len(self.problems) < SHOWN:
            self.problems.append(Problem(guarantee, text))

    def finish(self) -> None:
        """Check what only shows when all partitions have been read to their ends."""
        for topic in sorted({topic for topic, _ in self._partitions}):
            mine = {number: state for (name, number), state in sorted(self._partitions.items()) if name == topic}
            if self.ddls_everywhere:
                every = {ddl for state in mine.values() for ddl in state.ddls}
                for number, state in mine.items():
                    for ddl in sorted(every - set(state.ddls), key=lambda ddl: ddl.ts):
                        self._broken(Guarantee.EVERYWHERE, f"{topic}[{number}] does not have the DDL at {ddl.ts}: {ddl.query}")
            last = max(state.resolved for state in mine.values())
            for number, state in mine.items():
                if state.resolved < last:
                    self._broken(Guarantee.EVERYWHERE, f"{topic}[{number}] ends at resolved {state.resolved}, another partition at {last}")


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


def _identity(topic: str, row: RowEvent) -> bytes | None:
    """Return the identity of a row within a topic; None for a table without a key."""
    handle = tuple((column.name, column.value) for column in row.after or row.before if column.handle)
    return _digest(repr((topic, row.schema, row.table, sorted(handle, key=lambda part: part[0])))) if handle else None


def _concerns(ddl: DdlMessage, name: Name) -> bool:
    return ddl.schema == name[0] and ddl.table in ("", name[1])
