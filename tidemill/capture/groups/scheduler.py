"""The scheduler of groups: events in, actions out. Pure; the caller has the clock.

    waiting ──(comes)──▶ running ──(goes, falls silent)──▶ paused ──(due)──▶ waiting ──(does not come)──▶ paused
                            ▲                                 │ (comes)
                            └──────────(due)────────── held ◀─┘

Attempts of a group are numbered, and only the newest counts. A late attempt (a process that was suspended, an executor that was given up)
is refused here and fenced by the log. A group that fails is started again after a pause. The pause doubles up to 30 s, and is reset when
the group has advanced.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemill.capture.status import Section
from tidemill.errors import LogFenced, LogLocked, TidemillError, made, redact

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
FAILURES_IN_A_ROW = 20
"""Failures in a row without progress after which the capture ends."""
SILENT_AFTER_S = 30.0
"""Seconds without a report after which a group counts as silent. A group reports each second."""
WAITS_AFTER_S = 20.0
"""Seconds after which a group that has not connected is named in the log."""
COMES_WITHIN_S = 600.0
"""Seconds after which a started process that has not connected counts as hanging. (The very first start may compile kernels. A task may
wait for an executor without limit.)"""
ASLEEP_S = 5.0
"""Seconds between two ticks that show that the coordinator itself was suspended, not the groups. Ticks normally come each second."""


class Phase(enum.StrEnum):
    """The state of a group."""

    WAITING = "waiting"  # its process starts, or its task waits for an executor
    RUNNING = "running"
    PAUSED = "paused"  # it failed; it starts again after its pause
    HELD = "held"  # a new attempt has connected, and waits for the pause to end
    STOPPING = "stopping"  # told to end
    ENDED = "ended"


class Event(enum.StrEnum):
    """An event of a group."""

    CAME = "came"  # a new attempt said hello
    WENT = "went"  # the current attempt is gone: its connection, or its process
    SILENT = "silent"  # the attempt has started or connected, and is silent
    DUE = "due"  # its pause has ended
    STOP = "stop"  # the capture ends


TRANSITIONS: Mapping[tuple[Phase, Event], Phase] = {
    (Phase.WAITING, Event.CAME): Phase.RUNNING,
    (Phase.WAITING, Event.WENT): Phase.PAUSED,
    (Phase.WAITING, Event.SILENT): Phase.PAUSED,
    (Phase.WAITING, Event.STOP): Phase.ENDED,
    (Phase.RUNNING, Event.CAME): Phase.RUNNING,  # the attempt before it is refused
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
"""The phase after an event. A pair that is not listed changes nothing."""


_OTHERS = (LogFenced.code, LogLocked.code)
"""Errors that show that another attempt exists: they do not end the capture."""


@dataclass(frozen=True, slots=True)
class Who:
    """The attempt of a group, as it introduced itself."""

    attempt: int
    pid: int
    host: str
    task: int = -1  # Spark's id of the attempt


@dataclass(frozen=True, slots=True)
class Launch:
    """Start this attempt. Only if the coordinator starts attempts (Spark starts its own)."""

    group: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Assign:
    """Give the attempt its partitions."""

    group: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """Reject the attempt: tell it that it does not count, and close its connection."""

    group: int
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Order:
    """Tell the attempt to seal what is resolved and end."""

    group: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill what is left of the attempt."""

    group: int
    who: Who


@dataclass(frozen=True, slots=True)
class Fail:
    """End the capture with this error."""

    error: TidemillError


@dataclass(frozen=True, slots=True)
class Say:
    """Log this text; `grave`: as a warning."""

    text: str
    grave: bool = False


Action = Launch | Assign | Refuse | Order | Kill | Fail | Say


@dataclass(slots=True)
class Member:
    """The state of one group."""

    number: int
    partitions: tuple[int, ...]
    phase: Phase = Phase.WAITING
    since: float = 0.0  # when its phase began
    attempt: int = -1  # the newest attempt that was started or connected
    who: Who | None = None  # the attempt that is connected, or was last
    due: float = 0.0
    heard: float = 0.0
    failures: int = 0  # failures in a row
    restarts: int = 0
    progress: int = 0  # its head when it got its partitions
    section: Section | None = None
    error: tuple[str, str] | None = None  # code and message of its last failure
    named: bool = False  # its wait was logged

    @property
    def head(self) -> int:
        """Return the smallest head of its partitions, as reported."""
        return min(self.section.heads.values(), default=0) if self.section is not None else 0


def pause_after(failures: int) -> float:
    """Return the seconds to wait before the next start after this many failures in a row."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** max(0, failures - 1))


class Scheduler:
    """Schedules all groups. `launches`: the coordinator starts them; else attempts come by themselves. `waits_for`: what a group that has
    not connected waits for, for messages."""

    def __init__(
        self, divided: Sequence[tuple[int, ...]], *, launches: bool, waits_for: str = "its process", silent_after: float = SILENT_AFTER_S
    ) -> None:
        self.divide(divided)
        self.stopping = False
        self._launches, self._waits_for, self._silent_after = launches, waits_for, silent_after
        self._ticked: float | None = None

    def divide(self, divided: Sequence[tuple[int, ...]]) -> None:
        """Set other partitions for the groups, before any group begins."""
        self.members = [Member(g, partitions) for g, partitions in enumerate(divided)]

    @property
    def is_over(self) -> bool:
        """Whether all groups have ended."""
        return all(m.phase is Phase.ENDED for m in self.members)

    def running(self) -> list[tuple[int, int]]:
        """Return group and attempt of those that have partitions."""
        return [(m.number, m.attempt) for m in self.members if m.phase in (Phase.RUNNING, Phase.STOPPING)]

    # ------------------------------------------------------------------ events

    def begin(self, now: float) -> list[Action]:
        """Start all groups."""
        for member in self.members:
            member.since = now
        return [action for member in self.members for action in self._launch(member)]

    def hello(self, group: int, who: Who, now: float) -> list[Action]:
        """Handle an attempt that has connected."""
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
        """Take a group's report. Of an attempt that does not count, only heads are used: they never go back."""
        member = self.members[group]
        if attempt == member.attempt:
            member.heard = now
            if member.section is not None:
                section.heads = _latest(member.section.heads, section.heads)
                section.synced = _latest(member.section.synced, section.synced)
            member.section = section

    def failed(self, group: int, attempt: int, code: str, message: str, retryable: bool) -> list[Action]:
        """Handle the error with which an attempt ended. Its disconnect is reported separately."""
        member = self.members[group]
        if attempt != member.attempt or self.stopping:
            return []
        member.error = code, redact(message)
        if retryable or code in _OTHERS:
            return []
        return [Fail(made(code, f"group {group}: {message}", retryable=False))]

    def gone(self, group: int, attempt: int, why: str, now: float) -> list[Action]:
        """Handle the end of an attempt's connection or process."""
        member = self.members[group]
        if attempt != member.attempt:
            return []
        return self._lost(member, Event.WENT, why, now)

    def tick(self, now: float) -> list[Action]:
        """Handle what is due. Call it each second."""
        if self._ticked is not None and now - self._ticked > ASLEEP_S:
            for member in self.members:
                member.heard = now
        self._ticked = now
        actions: list[Action] = []
        for member in self.members:
            if member.phase is Phase.RUNNING and now - member.heard > self._silent_after:
                actions += self._lost(member, Event.SILENT, f"it was silent for {now - member.heard:.0f} s", now)
            elif member.phase in (Phase.PAUSED, Phase.HELD) and now >= member.due:
                actions += self._resume(member, now)
            elif member.phase is Phase.WAITING and self._launches and now - max(member.since, member.heard) > COMES_WITHIN_S:
                actions += self._lost(member, Event.SILENT, f"its process did not connect within {COMES_WITHIN_S:.0f} s", now)
            elif member.phase is Phase.WAITING and not member.named and now - member.since > WAITS_AFTER_S:
                member.named = True
                actions.append(Say(f"group {member.number} waits for {self._waits_for} for {now - member.since:.0f} s"))
        return actions

    def stop(self, now: float) -> list[Action]:
        """Stop all groups."""
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
            return []  # its pause continues
        member.failures = 1 if member.head > member.progress else member.failures + 1
        member.progress = member.head
        member.restarts += 1
        error = f"{member.error[0]}: {member.error[1]}" if member.error is not None else ""
        if member.failures > FAILURES_IN_A_ROW:
            code = member.error[0] if member.error is not None else TidemillError.code
            text = f"group {member.number} failed {member.failures} times in a row without progress, the last time with {error or why}"
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
