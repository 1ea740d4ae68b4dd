"""What the coordinator decides about its groups: events in, actions out. Pure; the clock is the caller's.

    waiting ──(comes)──▶ running ──(goes, falls silent)──▶ paused ──(due)──▶ waiting ──(does not come)──▶ paused
                            ▲                                 │ (comes)
                            └──────────(due)────────── held ◀─┘

Attempts of a group are numbered, and only the newest counts: one that comes late, a process that was asleep, an executor that was
given up, is refused here and fenced by the log. A group that fails is started again after a pause that doubles up to 30 s and begins
again once it has got further.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemill.capture.status import Section
from tidemill.errors import LogFenced, LogLocked, TidemillError, made, redact

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
FAILURES_IN_A_ROW = 20
"""Without any progress; then the capture ends."""
SILENT_AFTER_S = 30.0
"""A group reports each second."""
WAITS_AFTER_S = 20.0
"""A group that has not come for so long is named."""
COMES_WITHIN_S = 600.0
"""A process that was started and has not come for so long hangs. (The first start of all may compile
kernels; a task may wait for an executor for as long as it takes.)"""
ASLEEP_S = 5.0
"""Ticks come each second: one that comes so late means that we were asleep, not the groups."""


class Phase(enum.StrEnum):
    """Where a group is."""

    WAITING = "waiting"  # its process starts, or its task waits for an executor
    RUNNING = "running"
    PAUSED = "paused"  # it failed; it starts again when its pause is over
    HELD = "held"  # it is there again, and waits for its pause to be over
    STOPPING = "stopping"  # told to end
    ENDED = "ended"


class Event(enum.StrEnum):
    """What happens to a group."""

    CAME = "came"  # a new attempt said hello
    WENT = "went"  # the attempt that counts is gone: its connection, or its process
    SILENT = "silent"  # it is there, connected or only started, and says nothing
    DUE = "due"  # its pause is over
    STOP = "stop"  # the capture ends


TRANSITIONS: Mapping[tuple[Phase, Event], Phase] = {
    (Phase.WAITING, Event.CAME): Phase.RUNNING,
    (Phase.WAITING, Event.WENT): Phase.PAUSED,
    (Phase.WAITING, Event.SILENT): Phase.PAUSED,
    (Phase.WAITING, Event.STOP): Phase.ENDED,
    (Phase.RUNNING, Event.CAME): Phase.RUNNING,  # the one before it is refused
    (Phase.RUNNING, Event.WENT): Phase.PAUSED,
    (Phase.RUNNING, Event.SILENT): Phase.PAUSED,
    (Phase.RUNNING, Event.STOP): Phase.STOPPING,
    (Phase.PAUSED, Event.CAME): Phase.HELD,
    (Phase.PAUSED, Event.DUE): Phase.WAITING,
    (Phase.PAUSED, Event.STOP): Phase.ENDED,
    (Phase.HELD, Event.CAME): Phase.HELD,
    (Phase.HELD, Event.WENT): Phase.PAUSED,
    (Phase.HELD, Event.DUE): Phase.RUNNING,
    (Phase.HELD, Event.STOP): Phase.STOPPING,
    (Phase.STOPPING, Event.WENT): Phase.ENDED,
}
"""The phase after an event. A pair that is not here changes nothing."""


_OTHERS = (LogFenced.code, LogLocked.code)
"""Errors that tell of another attempt, which is there yet or again: no reason to end the capture."""


@dataclass(frozen=True, slots=True)
class Who:
    """An attempt of a group, as it introduced itself."""

    attempt: int
    pid: int
    host: str
    task: int = -1  # Spark's id of the attempt


@dataclass(frozen=True, slots=True)
class Launch:
    """Start this attempt. Only where the coordinator starts them (not where Spark does)."""

    group: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Assign:
    """Give the attempt its partitions."""

    group: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """Tell the attempt that it does not count, and close its connection."""

    group: int
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Order:
    """Tell the attempt to seal and end."""

    group: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Kill:
    """End whatever is left of the attempt."""

    group: int
    who: Who


@dataclass(frozen=True, slots=True)
class Fail:
    """The capture cannot go on."""

    error: TidemillError


@dataclass(frozen=True, slots=True)
class Say:
    """For the log; `grave`: as a warning."""

    text: str
    grave: bool = False


Action = Launch | Assign | Refuse | Order | Kill | Fail | Say


@dataclass(slots=True)
class Member:
    """What is known of a group."""

    number: int
    partitions: tuple[int, ...]
    phase: Phase = Phase.WAITING
    since: float = 0.0  # in its phase
    attempt: int = -1  # the newest that was started or came
    who: Who | None = None  # that is connected, or was last
    due: float = 0.0
    heard: float = 0.0
    failures: int = 0  # in a row
    restarts: int = 0
    progress: int = 0  # its head when it was given its partitions
    section: Section | None = None
    error: tuple[str, str] | None = None  # code and message of its last failure
    named: bool = False  # that it waits was said

    @property
    def head(self) -> int:
        """The smallest of its partitions' heads, as far as it has told them."""
        return min(self.section.heads.values(), default=0) if self.section is not None else 0


def pause_after(failures: int) -> float:
    """Seconds before the start behind so many failures in a row."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** max(0, failures - 1))


class Scheduler:
    """All groups. `launches`: the coordinator starts them; else attempts come by themselves. `waits_for`: what a group that has not come
    lacks, for people."""

    def __init__(
        self, divided: Sequence[tuple[int, ...]], *, launches: bool, waits_for: str = "its process", silent_after: float = SILENT_AFTER_S
    ) -> None:
        self.divide(divided)
        self.stopping = False
        self._launches, self._waits_for, self._silent_after = launches, waits_for, silent_after
        self._ticked: float | None = None

    def divide(self, divided: Sequence[tuple[int, ...]]) -> None:
        """Other partitions for the groups, before any of them begins."""
        self.members = [Member(g, partitions) for g, partitions in enumerate(divided)]

    @property
    def is_over(self) -> bool:
        """Whether all have ended."""
        return all(m.phase is Phase.ENDED for m in self.members)

    def running(self) -> list[tuple[int, int]]:
        """Group and attempt of those that have partitions."""
        return [(m.number, m.attempt) for m in self.members if m.phase in (Phase.RUNNING, Phase.STOPPING)]

    # ------------------------------------------------------------------ events

    def begin(self, now: float) -> list[Action]:
        """Start all."""
        for member in self.members:
            member.since = now
        return [action for member in self.members for action in self._launch(member)]

    def hello(self, group: int, who: Who, now: float) -> list[Action]:
        """An attempt is connected."""
        if not 0 <= group < len(self.members):
            return [Refuse(group, who.attempt, f"there is no group {group}")]
        member = self.members[group]
        fresh = who.attempt > member.attempt or (who.attempt == member.attempt and member.phase is Phase.WAITING)
        if self.stopping:
            return [Order(group, who.attempt)]
        if not fresh:
            return [Refuse(group, who.attempt, f"attempt {member.attempt} has the partitions")]
        actions: list[Action] = []
        if member.phase in (Phase.RUNNING, Phase.HELD) and member.who is not None:
            actions.append(Refuse(group, member.who.attempt, f"attempt {who.attempt} takes over"))
            if member.phase is Phase.RUNNING:
                member.restarts += 1
                actions.append(Say(f"group {group} is taken over by attempt {who.attempt} ({_place(who)}) from {_place(member.who)}"))
        member.attempt, member.who, member.heard = who.attempt, who, now
        self._enter(member, Event.CAME, now)
        return actions + self._assigned(member)

    def report(self, group: int, attempt: int, section: Section, now: float) -> None:
        """What a group tells of itself. Of an attempt that does not count any more only heads are taken: they never go back."""
        member = self.members[group]
        if attempt == member.attempt:
            member.heard = now
            if member.section is not None:
                section.heads = _latest(member.section.heads, section.heads)
                section.synced = _latest(member.section.synced, section.synced)
            member.section = section

    def failed(self, group: int, attempt: int, code: str, message: str, retryable: bool) -> list[Action]:
        """The last word of an attempt with an error; that it is gone comes by itself."""
        member = self.members[group]
        if attempt != member.attempt or self.stopping:
            return []
        member.error = code, redact(message)
        if retryable or code in _OTHERS:
            return []
        return [Fail(made(code, f"group {group}: {message}", retryable=False))]

    def gone(self, group: int, attempt: int, why: str, now: float) -> list[Action]:
        """The connection or the process of an attempt has ended."""
        member = self.members[group]
        if attempt != member.attempt:
            return []
        return self._lost(member, Event.WENT, why, now)

    def tick(self, now: float) -> list[Action]:
        """Time has passed: call it each second."""
        if self._ticked is not None and now - self._ticked > ASLEEP_S:
            for member in self.members:
                member.heard = now
        self._ticked = now
        actions: list[Action] = []
        for member in self.members:
            if member.phase is Phase.RUNNING and now - member.heard > self._silent_after:
                actions += self._lost(member, Event.SILENT, f"nothing was heard of it for {now - member.heard:.0f} s", now)
            elif member.phase in (Phase.PAUSED, Phase.HELD) and now >= member.due:
                actions += self._resume(member, now)
            elif member.phase is Phase.WAITING and self._launches and now - max(member.since, member.heard) > COMES_WITHIN_S:
                actions += self._lost(member, Event.SILENT, f"its process did not come within {COMES_WITHIN_S:.0f} s", now)
            elif member.phase is Phase.WAITING and not member.named and now - member.since > WAITS_AFTER_S:
                member.named = True
                actions.append(Say(f"group {member.number} waits for {self._waits_for} for {now - member.since:.0f} s"))
        return actions

    def stop(self, now: float) -> list[Action]:
        """The capture ends."""
        self.stopping = True
        actions: list[Action] = []
        for member in self.members:
            if member.phase in (Phase.RUNNING, Phase.HELD):
                actions.append(Order(member.number, member.attempt))
            self._enter(member, Event.STOP, now)
        return actions

    # ------------------------------------------------------------------ steps

    def _enter(self, member: Member, event: Event, now: float) -> None:
        phase = TRANSITIONS.get((member.phase, event), member.phase)
        if phase is not member.phase:
            member.phase, member.since, member.named = phase, now, False

    def _launch(self, member: Member) -> list[Action]:
        if not self._launches:
            return []
        member.attempt += 1
        return [Launch(member.number, member.attempt)]

    def _assigned(self, member: Member) -> list[Action]:
        if member.phase is not Phase.RUNNING:
            return []
        member.progress, member.error = member.head, None
        assert member.who is not None
        return [
            Assign(member.number, member.attempt),
            Say(f"group {member.number} (partitions {_listed(member.partitions)}) runs as {_place(member.who)}, attempt {member.attempt}"),
        ]

    def _lost(self, member: Member, event: Event, why: str, now: float) -> list[Action]:
        before = member.phase
        self._enter(member, event, now)
        if member.phase is before or member.phase is Phase.ENDED:
            return []
        if before is Phase.HELD:
            return []  # its pause goes on
        member.failures = 1 if member.head > member.progress else member.failures + 1
        member.progress = member.head
        member.restarts += 1
        error = f"{member.error[0]}: {member.error[1]}" if member.error is not None else ""
        if member.failures > FAILURES_IN_A_ROW:
            code = member.error[0] if member.error is not None else TidemillError.code
            text = f"group {member.number} failed {member.failures} times in a row without getting any further, at last with {error or why}"
            return [Fail(made(code, text, retryable=False))]
        pause = pause_after(member.failures)
        member.due = now + pause
        told = f" with {error}" if error else ""
        actions: list[Action] = [Say(f"group {member.number} is lost{told} ({why}) and starts again in {pause:.0f} s", grave=True)]
        if event is Event.SILENT and before is Phase.WAITING:
            actions.append(Kill(member.number, Who(member.attempt, 0, "")))
        elif event is Event.SILENT and member.who is not None:
            actions += [Refuse(member.number, member.attempt, why), Kill(member.number, member.who)]
        return actions

    def _resume(self, member: Member, now: float) -> list[Action]:
        actions: list[Action] = []
        if member.phase is Phase.PAUSED and member.who is not None:
            actions.append(Kill(member.number, member.who))
        self._enter(member, Event.DUE, now)
        member.heard = now
        return actions + (self._launch(member) if member.phase is Phase.WAITING else self._assigned(member))


def _place(who: Who) -> str:
    return f"process {who.pid} on {who.host}"


def _listed(partitions: tuple[int, ...]) -> str:
    return ", ".join(map(str, partitions))


def _latest(before: dict[int, int], told: dict[int, int]) -> dict[int, int]:
    return {p: max(before.get(p, 0), told.get(p, 0)) for p in before | told}
