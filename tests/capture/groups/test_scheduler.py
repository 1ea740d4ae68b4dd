"""What the coordinator of a capture in groups decides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.capture.groups.divide import divide
from tidemill.capture.groups.scheduler import (
    COMES_WITHIN_S,
    FAILURES_IN_A_ROW,
    TRANSITIONS,
    Action,
    Assign,
    Event,
    Fail,
    Kill,
    Launch,
    Order,
    Phase,
    Refuse,
    Say,
    Scheduler,
    Who,
    pause_after,
)
from tidemill.capture.status import Section
from tidemill.errors import LogFenced, LogLocked


def who(attempt: int) -> Who:
    return Who(attempt, 1000 + attempt, "h", 70 + attempt)


def scheduler(groups: int = 1, *, launches: bool = True) -> Scheduler:
    return Scheduler(divide(max(groups, 2), groups), launches=launches, silent_after=10.0)


def in_phase(phase: Phase, *, launches: bool = False) -> Scheduler:
    """A scheduler of one group, brought into this phase, at time 100."""
    one = scheduler(launches=launches)
    one.begin(0)
    if phase is Phase.WAITING:
        return one
    one.hello(0, who(0), 1)
    if phase in (Phase.PAUSED, Phase.HELD):
        one.gone(0, 0, "test", 100)
    if phase is Phase.HELD:
        one.hello(0, who(1), 100)
    if phase in (Phase.STOPPING, Phase.ENDED):
        one.stop(100)
    if phase is Phase.ENDED:
        one.gone(0, 0, "test", 100)
    assert one.members[0].phase is phase
    return one


def happen(one: Scheduler, event: Event) -> list[Action]:
    member = one.members[0]
    match event:
        case Event.CAME:
            return one.hello(0, who(member.attempt + 1), 101)
        case Event.WENT:
            return one.gone(0, member.attempt, "test", 101)
        case Event.STOP:
            return one.stop(101)
        case Event.SILENT | Event.DUE:
            return one.tick(1 + COMES_WITHIN_S if member.phase is Phase.WAITING else 101)


OF_TIME = {(Phase.WAITING, Event.SILENT), (Phase.RUNNING, Event.SILENT), (Phase.PAUSED, Event.DUE), (Phase.HELD, Event.DUE)}


@pytest.mark.parametrize(
    ("phase", "event"), [(p, e) for p in Phase for e in Event if e not in (Event.SILENT, Event.DUE) or (p, e) in OF_TIME], ids=str
)
def test_each_event_in_each_phase(phase: Phase, event: Event) -> None:
    """Every pair in the table leads to the phase given there; any other pair changes nothing."""
    assert {pair for pair in TRANSITIONS if pair[1] in (Event.SILENT, Event.DUE)} == OF_TIME
    one = in_phase(phase, launches=(phase, event) == (Phase.WAITING, Event.SILENT))
    actions = happen(one, event)
    assert one.members[0].phase is TRANSITIONS.get((phase, event), phase)
    if event is Event.CAME:
        newest = [a for a in actions if isinstance(a, Assign)]
        refused = {a.attempt for a in actions if isinstance(a, Refuse)}
        if one.members[0].phase is Phase.RUNNING:
            assert [a.attempt for a in newest] == [one.members[0].attempt]
            assert refused == ({0} if phase is Phase.RUNNING else set())
        else:
            assert not newest
        if phase in (Phase.STOPPING, Phase.ENDED):
            assert actions == [Order(0, 1)], "a task that comes late ends as well"


def test_a_process_is_started_again_with_a_pause_that_grows_until_it_gets_further() -> None:
    one = scheduler()
    assert one.begin(0) == [Launch(0, 0)]
    now, pauses = 0.0, []
    for attempt in range(4):
        assert Assign(0, attempt) in one.hello(0, who(attempt), now)
        one.report(0, attempt, Section({0: 5, 1: 5}), now)
        if attempt == 3:
            one.report(0, attempt, Section({0: 9, 1: 7}), now)
        said = one.gone(0, attempt, "its connection ended", now)
        assert isinstance(said[0], Say)
        assert one.gone(0, attempt, "its process ended", now) == [], "the second word of the same end"
        pauses.append(one.members[0].due - now)
        assert one.tick(now + pauses[-1] - 0.1) == []
        now += pauses[-1]
        assert one.tick(now) == [Kill(0, who(attempt)), Launch(0, attempt + 1)], "whatever is left of it ends before the next begins"
    assert pauses == [1.0, 2.0, 4.0, 1.0], "the last got from 5 to 7"
    assert pause_after(30) == 30.0


def test_a_process_that_never_comes_is_killed_and_started_again() -> None:
    def ticked(one: Scheduler) -> list[Action]:
        one.begin(0)
        return [action for second in range(int(COMES_WITHIN_S) + 3) for action in one.tick(second)]

    waits, lost, *others = ticked(scheduler())
    assert isinstance(waits, Say)
    assert isinstance(lost, Say)
    assert others == [Kill(0, Who(0, 0, "")), Launch(0, 1)]
    assert [type(a) for a in ticked(scheduler(launches=False))] == [Say], "a task waits for an executor"


def test_heads_stay_known_while_a_new_attempt_has_told_none() -> None:
    one = scheduler(launches=False)
    one.begin(0)
    one.hello(0, who(0), 0)
    one.report(0, 0, Section({0: 5, 1: 7}), 1)
    one.gone(0, 0, "test", 2)
    one.hello(0, who(1), 3)
    one.report(0, 1, Section(), 4)
    assert one.members[0].section == Section({0: 5, 1: 7})
    one.report(0, 1, Section({0: 6, 1: 6}), 5)
    assert one.members[0].section == Section({0: 6, 1: 7})


def test_an_attempt_that_comes_late_is_refused() -> None:
    one = scheduler(launches=False)
    one.begin(0)
    one.hello(0, who(3), 0)
    assert [type(a) for a in one.hello(0, who(2), 1)] == [Refuse]
    assert [type(a) for a in one.hello(0, who(3), 1)] == [Refuse]
    assert one.members[0].phase is Phase.RUNNING
    assert one.gone(0, 2, "late", 2) == []
    assert one.failed(0, 2, "TM:ErrLogCorrupt", "late", False) == []
    assert [type(a) for a in one.hello(7, who(1), 1)] == [Refuse]


def test_a_group_that_says_nothing_is_given_up_unless_we_were_asleep() -> None:
    one = scheduler(launches=False)
    one.begin(0)
    one.hello(0, who(0), 0)
    for now in range(1, 10):
        assert one.tick(now) == []
    one.report(0, 0, Section({0: 5, 1: 5}), 9.5)
    for now in range(10, 19):
        assert one.tick(now) == []
    assert one.tick(60) == [], "so late a tick means that we slept"
    for now in range(61, 70):
        assert one.tick(now) == []
    actions = one.tick(71)
    assert [type(a) for a in actions] == [Say, Refuse, Kill]
    assert actions[-1] == Kill(0, who(0))
    assert one.members[0].phase is Phase.PAUSED


def test_a_task_that_spark_runs_again_at_once_waits_for_its_pause() -> None:
    one = in_phase(Phase.PAUSED)
    assert [a for a in one.hello(0, who(1), 100.2) if isinstance(a, Assign)] == []
    assert one.tick(100.5) == []
    assert Assign(0, 1) in one.tick(101.1)


def test_errors_that_trying_again_does_not_mend_end_the_capture() -> None:
    one = in_phase(Phase.RUNNING)
    [fail] = one.failed(0, 0, "TM:ErrStartTsBeforeGC", "gone", False)
    assert isinstance(fail, Fail)
    assert fail.error.code == "TM:ErrStartTsBeforeGC"
    assert "group 0: gone" in str(fail.error)
    assert one.failed(0, 0, "TM:ErrUpstreamUnavailable", "away", True) == []
    for fenced in (LogFenced.code, LogLocked.code):
        assert one.failed(0, 0, fenced, "somebody else", False) == [], "another attempt is there: no reason to end"


def test_a_group_that_gets_nowhere_ends_the_capture_at_last() -> None:
    one, now = scheduler(), 0.0
    one.begin(now)
    for attempt in range(FAILURES_IN_A_ROW + 1):
        one.hello(0, who(attempt), now)
        one.failed(0, attempt, "MemoryError", "no memory", True)
        actions = one.gone(0, attempt, "it went", now)
        now = one.members[0].due
        one.tick(now)
    [fail] = actions
    assert isinstance(fail, Fail)
    assert "MemoryError" in str(fail.error)


def test_a_group_that_does_not_come_is_named_once() -> None:
    one = Scheduler(divide(4, 2), launches=False, waits_for="an executor")
    one.begin(0)
    one.hello(0, who(0), 1)
    said = [a for now in range(1, 60) for a in one.tick(now) if isinstance(a, Say) and one.report(0, 0, Section(), now) is None]
    assert [a.text for a in said if "waits" in a.text] == ["group 1 waits for an executor for 21 s"]


def test_the_end_is_ordered_and_awaited() -> None:
    one = scheduler(2, launches=False)
    one.begin(0)
    one.hello(0, who(0), 1)
    assert one.stop(2) == [Order(0, 0)]
    assert not one.is_over
    one.gone(0, 0, "it ended", 3)
    assert one.is_over
    assert one.hello(1, who(0), 4) == [Order(1, 0)], "Spark had no core for it before; its task ends too"
    held = in_phase(Phase.HELD)
    assert held.stop(101) == [Order(0, 1)]
    assert not held.is_over


@given(st.lists(st.tuples(st.sampled_from(["hello", "gone", "tick", "report"]), st.integers(0, 1), st.integers(0, 4)), max_size=60))
def test_whatever_happens_one_attempt_at_a_time_has_a_group(steps: list[tuple[str, int, int]]) -> None:
    one = scheduler(2, launches=False)
    one.begin(0)
    has: dict[int, int] = {}
    connected: set[tuple[int, int]] = set()
    for now, (kind, group, attempt) in enumerate(steps):
        if kind == "hello":
            actions = one.hello(group, who(attempt), now) if (group, attempt) not in connected else []
            connected.add((group, attempt))
        elif kind == "gone":
            connected.discard((group, attempt))
            has = {g: a for g, a in has.items() if (g, a) != (group, attempt)}
            actions = one.gone(group, attempt, "test", now)
        elif kind == "report":
            one.report(group, attempt, Section({group: now}), now)
            actions = []
        else:
            actions = one.tick(now)
        for action in actions:
            if isinstance(action, Refuse):
                connected.discard((action.group, action.attempt))
                if has.get(action.group) == action.attempt:
                    del has[action.group]
            elif isinstance(action, Assign):
                assert action.group not in has, "another attempt has it"
                assert (action.group, action.attempt) in connected
                has[action.group] = action.attempt
