"""The attempts of a pump client against the recorded calls of the real one, which met the same faults. Time is a number here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.binlog.binlogs import lines
from tidemill.binlog.client.attempts import Attempt, CommitAttempts, Done, GiveUp, Outcome, PrewriteAttempts, Step, Wait
from tidemill.binlog.client.options import ClientOptions, Strategy
from tidemill.binlog.client.pumps import Pumps
from tidemill.binlog.nodes import Node, NodeState

Answer = Callable[[int], tuple[float, Outcome]]
"""How long the n-th attempt takes, and how it ends."""


def pumps(*names: str, options: ClientOptions | None = None) -> Pumps:
    found = Pumps(options or ClientOptions())
    found.look({name: Node(name, f"{name}:1", NodeState.ONLINE) for name in names})
    return found


def played(
    attempts: PrewriteAttempts | CommitAttempts, answer: Answer, upto: float = 1000.0
) -> tuple[list[tuple[float, str]], Step, float]:
    """When each attempt begins, and where; the end, and when that was."""
    now, calls = 0.0, []
    while now < upto:
        step = attempts.next(now)
        match step:
            case Attempt(node_id):
                seconds, outcome = answer(len(calls))
                calls.append((now, node_id))
                now += seconds
                attempts.ended(now, node_id, outcome, "refused")
            case Wait(seconds):
                now += seconds
            case Done() | GiveUp():
                return calls, step, now
    return calls, attempts.next(now), now


def recorded(case: str) -> list[float]:
    """When each call of a case began, as far as times were recorded."""
    (found,) = [line for line in lines("pump_client_faults") if line["case"] == case]
    return [call[0] for call in found["calls"]]


@pytest.mark.parametrize("case", ["unavailable", "unknown_error"])
def test_a_pump_that_refuses_is_asked_as_often_as_by_the_real_client(case: str) -> None:
    times = recorded(case)
    one = (times[-2] - times[0]) / (len(times) - 2) - 0.1  # what an answer and its waiting took there, beside the pause
    calls, end, _ = played(PrewriteAttempts(pumps("p"), ClientOptions(), 7, 0.0), lambda n: (one, Outcome.REFUSED))
    assert abs(len(calls) - len(times)) <= 2
    assert calls[-1][0] - calls[-2][0] < 0.05  # the last one follows without a pause
    assert end == GiveUp("refused")


def test_a_pump_that_hangs_is_asked_as_often_as_by_the_real_client() -> None:
    calls, end, now = played(PrewriteAttempts(pumps("p"), ClientOptions(), 7, 0.0), lambda n: (15.0, Outcome.REFUSED))
    assert [at for at, _ in calls] == pytest.approx(recorded("hang"), abs=0.2)
    assert (end, round(now)) == (GiveUp("refused"), 60)


def test_what_is_too_large_is_final() -> None:
    calls, end, _ = played(PrewriteAttempts(pumps("p", "q"), ClientOptions(), 7, 0.0), lambda n: (0.001, Outcome.TOO_LARGE))
    assert len(calls) == len(recorded("resource_exhausted")) == 1
    assert end == GiveUp("refused")


@pytest.mark.parametrize("case", ["commit_unavailable_5s", "commit_errmsg_5s"])
def test_a_commit_is_tried_every_second_at_the_pump_of_its_prewrite(case: str) -> None:
    times = recorded(case)[1:]
    calls, _, _ = played(CommitAttempts(ClientOptions(), "p", 0.0), lambda n: (0.002, Outcome.REFUSED), upto=times[-1] - times[0] + 0.5)
    assert [at for at, _ in calls] == pytest.approx([at - times[0] for at in times], abs=0.15)
    assert {node_id for _, node_id in calls} == {"p"}


def test_a_commit_is_forgotten_after_ten_minutes() -> None:
    calls, end, now = played(CommitAttempts(ClientOptions(), "p", 0.0), lambda n: (0.0, Outcome.REFUSED))
    assert (len(calls), end, now) == (601, GiveUp("refused"), 600.0)


def test_a_commit_ends_when_its_pump_has_gone_offline() -> None:
    """Not so one whose Pump is away: it may come back, and then takes the Commit sooner than TiKV is asked."""
    calls, end, now = played(CommitAttempts(ClientOptions(), "p", 0.0), lambda n: (0.0, Outcome.GONE if n == 3 else Outcome.REFUSED))
    assert (len(calls), end, now) == (4, GiveUp("refused"), 3.0)


def test_a_commit_ends_with_its_first_success() -> None:
    calls, end, _ = played(CommitAttempts(ClientOptions(), "p", 0.0), lambda n: (0.0, Outcome.WRITTEN if n == 3 else Outcome.REFUSED))
    assert (len(calls), end) == (4, Done("p"))


def test_a_prewrite_goes_from_pump_to_pump() -> None:
    calls, end, _ = played(
        PrewriteAttempts(pumps("a", "b", "c"), ClientOptions(), 7, 0.0), lambda n: (0.0, Outcome.WRITTEN if n == 4 else Outcome.REFUSED)
    )
    assert [node_id for _, node_id in calls] == ["a", "b", "c", "a", "b"]
    assert end == Done("b")


def test_at_last_each_pump_is_tried_once_more() -> None:
    options = ClientOptions(retry_for=1.0)
    calls, end, _ = played(PrewriteAttempts(pumps("a", "b", "c", options=options), options, 7, 0.0), lambda n: (0.0, Outcome.REFUSED))
    assert [node_id for _, node_id in calls[-3:]] == ["a", "b", "c"]
    assert calls[-1][0] == calls[-3][0] == calls[-4][0]
    assert isinstance(end, GiveUp)


def test_without_pumps_it_waits_as_long_and_says_so() -> None:
    calls, end, now = played(PrewriteAttempts(pumps(), ClientOptions(), 7, 0.0), lambda n: (0.0, Outcome.REFUSED))
    assert (calls, end) == ([], GiveUp("no Pump is online"))
    assert 15.0 <= now < 15.3


def test_unknown_strategies_are_range() -> None:
    assert [Strategy.of(text) for text in ("range", "HASH", "score", "none such")] == [
        Strategy.RANGE, Strategy.HASH, Strategy.SCORE, Strategy.RANGE,
    ]  # fmt: skip
