"""Made-up changefeeds as a consumer sees them: messages of several partitions, sent again from earlier points, in any interleaving."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from random import Random

from tidemill.consumer.order.ordering import Ordering, Transaction
from tidemill.consumer.order.pending import Group, Pending, Run
from tidemill.consumer.order.progress import Progress, TopicPartition
from tidemill.consumer.order.spill import TemporaryFiles
from tidemill.protocols.open.codes import ColumnFlag, ColumnType, DdlType
from tidemill.protocols.open.events import Column, DdlMessage, Event, ResolvedMessage, RowEvent, RowKind, Value


def columns(key: int, value: Value) -> tuple[Column, ...]:
    """An INT key and an INT."""
    flags = ColumnFlag.BINARY | ColumnFlag.HANDLE_KEY | ColumnFlag.PRIMARY_KEY
    return (
        Column("id", ColumnType.INT, flags, True, key),
        Column("v", ColumnType.INT, ColumnFlag.BINARY | ColumnFlag.NULLABLE, False, value),
    )


def row(ts: int, key: int, old: Value, new: Value, table: str = "t") -> RowEvent:
    """A change of a row of d.TABLE; None: no such image."""
    kind = RowKind.INSERT if old is None else RowKind.DELETE if new is None else RowKind.UPDATE
    return RowEvent(
        ts, "d", table, key, None, kind, () if new is None else columns(key, new), () if old is None else columns(key, old), False, None
    )


def ddl(ts: int, query: str, table: str = "t") -> DdlMessage:
    return DdlMessage(ts, "d", table, query, DdlType.ADD_COLUMN)


@dataclass
class Feed:
    """What a writer sends: `steps` in commit order, spread over partitions, with a resolved ts here and there; sent again at times."""

    random: Random
    partitions: int
    steps: list[Transaction | DdlMessage] = field(default_factory=list)
    sent: dict[TopicPartition, list[Event]] = field(default_factory=dict)

    def make(self, length: int) -> None:
        """Random transactions over a few keys, and DDLs."""
        state: dict[tuple[str, int], int] = {}
        ts = 10
        for _ in range(length):
            ts += self.random.randint(0, 3)
            if self.random.random() < 0.12:
                self.steps.append(ddl(ts, f"ALTER {len(self.steps)}"))
                if self.random.random() < 0.4:
                    self.steps.append(ddl(ts, f"ALTER AGAIN {len(self.steps)}"))
                ts += 1
                continue
            ts += 1
            rows = []
            keys = {(self.random.choice("tu"), self.random.randrange(6)) for _ in range(self.random.randint(1, 4))}
            for table, key in sorted(keys):  # a set's order differs from one process to the next, and a seed has to give the same feed
                old = state.get((table, key))
                new = None if old is not None and self.random.random() < 0.3 else self.random.randrange(1000)
                if old is not None and new is not None and self.random.random() < 0.3:
                    rows += [row(ts, key, old, None, table), row(ts, key, None, new, table)]  # a split update
                else:
                    rows.append(row(ts, key, old, new, table))
                if new is None:
                    del state[table, key]
                else:
                    state[table, key] = new
            self.steps.append(Transaction(ts, tuple(rows)))

    def send(self) -> None:
        """Write everything, beginning again at an earlier resolved ts now and then, as a writer that is killed does."""
        homes = [("a", p) for p in range(self.partitions)] + [("b", 0)]
        self.sent = {home: [] for home in homes}
        at = checkpoint = 0
        resolved = 0
        again = 3
        while at < len(self.steps):
            step = self.steps[at]
            if isinstance(step, Transaction):
                for event in step.rows:
                    key = event.after or event.before
                    home = ("b", 0) if event.table == "u" else ("a", int(key[0].value) % self.partitions)  # type: ignore[arg-type]
                    self.sent[home].append(event)
            else:
                for home in homes:
                    self.sent[home].append(step)
            at += 1
            boundary = at == len(self.steps) or self.steps[at].ts > step.ts
            if boundary and (at == len(self.steps) or self.random.random() < 0.4):
                checkpoint, resolved = at, step.ts
                for home in homes:
                    self.sent[home].append(ResolvedMessage(resolved))
            elif again and self.random.random() < 0.15:
                again -= 1
                at = checkpoint if self.random.random() < 0.7 else self.random.randint(0, checkpoint)
                while at and self.steps[at - 1].ts == self.steps[at].ts:
                    at -= 1

    @property
    def final(self) -> dict[tuple[str, int], Value]:
        """The rows that are there at the end."""
        state: dict[tuple[str, int], Value] = {}
        for step in self.steps:
            if isinstance(step, Transaction):
                apply(state, step.rows)
        return state


def apply(state: dict[tuple[str, int], Value], rows: Iterable[RowEvent]) -> None:
    """What rows do to a table of one INT and a key."""
    for event in rows:
        if event.before and not event.after:
            state.pop((event.table, event.before[0].value), None)  # type: ignore[arg-type]
        if event.after:
            state[event.table, event.after[0].value] = event.after[1].value  # type: ignore[index]


@dataclass
class Target:
    """A target with transactions: what was applied, and the progress kept with it."""

    state: dict[tuple[str, int], Value] = field(default_factory=dict)
    steps: list[Transaction | DdlMessage] = field(default_factory=list)
    progress: Progress = field(default_factory=Progress)


class MemorySpill:
    """Runs in memory."""

    def write(self, groups: Iterable[Group], offsets: dict[TopicPartition, int]) -> Run:
        return _MemoryRun(list(groups), offsets)


class _MemoryRun:
    def __init__(self, groups: list[Group], offsets: dict[TopicPartition, int]) -> None:
        self._groups, self.offsets = groups, offsets

    @property
    def first_ts(self) -> int | None:
        return self._groups[0][0] if self._groups else None

    def until(self, ts: int) -> Iterator[Group]:
        while self._groups and self._groups[0][0] <= ts:
            yield self._groups.pop(0)

    def close(self) -> None:
        self._groups = []


def consume(feed: Feed, target: Target, random: Random, *, kills: int = 0, quota: int = 1 << 30, on_disk: bool = False) -> Ordering:
    """Read everything, one message of a random partition at a time; a kill forgets all but the target."""
    spill = TemporaryFiles() if on_disk else MemorySpill()
    while True:
        ordering = Ordering(Pending(quota, spill), target.progress)
        left = {home: ordering.join(home) for home in feed.sent}
        killed = False
        while not killed:
            open_homes = [home for home, at in left.items() if at < len(feed.sent[home])]
            if not open_homes:
                return ordering
            home = random.choice(open_homes)
            ordering.take(home, left[home], [feed.sent[home][left[home]]], 10)
            left[home] += 1
            if kills and random.random() < 0.05:
                killed, kills = True, kills - 1
            elif random.random() < 0.3:
                killed = _flush(ordering, target, random, kills)
                kills -= killed
            elif not [h for h, at in left.items() if at < len(feed.sent[h])]:
                _flush(ordering, target, random, 0)


def _flush(ordering: Ordering, target: Target, random: Random, kills: int) -> bool:
    """Apply what is complete, in one or several commits; True: killed before the last of them."""
    upto = ordering.ready()
    if upto is None:
        return False
    state, steps = dict(target.state), list(target.steps)
    for step in ordering.drain(upto):
        if kills and random.random() < 0.1:
            return True
        if steps and steps[-1].ts < step.ts and random.random() < 0.2:
            target.state, target.steps, target.progress = dict(state), list(steps), ordering.partly_flushed(step.ts - 1)
        steps.append(step)
        if isinstance(step, Transaction):
            apply(state, step.rows)
    if kills and random.random() < 0.2:
        return True
    target.state, target.steps, target.progress = state, steps, ordering.flushed(upto)
    return False
