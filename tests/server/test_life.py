"""The life of a changefeed of a server: what follows from what, and that no other transition of states is taken."""

from __future__ import annotations

from random import Random

import pytest

from tidemill.changefeed.states import TRANSITIONS, Event, State, after
from tidemill.errors import LogUnavailable, MessageTooLarge, SinkUnavailable
from tidemill.server import life as life_module
from tidemill.server.errors import LogNotKept
from tidemill.server.life import HOST_LOST, Do, Life, Trouble

AWAY = (SinkUnavailable.code, "the broker is away")


def fails(life: Life, now: float, code: str = SinkUnavailable.code, *, retryable: bool = True, checkpoint: int = 10) -> Do:
    return life.failed(code, "away", retryable=retryable, now=now, checkpoint=checkpoint, trouble_since=None, chance=0.5)


def test_an_error_that_may_pass_is_waited_out_with_growing_pauses() -> None:
    life = Life(State.NORMAL, None, 1800.0)
    now, pauses = 1000.0, []
    for _ in range(4):
        assert life.started()
        assert life.runs
        life.erred(*AWAY, now)
        assert life.state is State.WARNING
        assert fails(life, now) is Do.WAIT
        assert (life.state, life.runs, life.wanted) == (State.PENDING, False, True)
        assert life.retry_at is not None
        pauses.append(life.retry_at - now)
        now = life.retry_at
    assert pauses == [10, 20, 40, 80]
    life.started()
    assert (life.state, life.retries) == (State.WARNING, True)
    assert life.advanced(now + 1)
    assert life.state is State.NORMAL
    assert life.trouble is None


def test_errors_without_progress_end_in_failed_and_a_person_begins_again() -> None:
    life = Life(State.NORMAL, None, 30.0)
    now = 0.0
    while life.wanted:
        life.started()
        if fails(life, now) is Do.WAIT:
            now = life.retry_at or 0.0
    assert (life.state, now) == (State.FAILED, 30.0)
    assert life.trouble is not None
    assert life.trouble.code == SinkUnavailable.code
    assert life.resumed(now) is Do.START
    assert (life.state, life.trouble) == (State.NORMAL, None)


def test_the_time_for_errors_runs_on_when_another_server_takes_over() -> None:
    """`since` is the first error, and counts; not where no server was there for long, nor once the checkpoint has moved."""
    before = Trouble(*AWAY, at=1500.0, since=1000.0)

    def taken_over(now: float, *, moves: bool = False) -> Life:
        life = Life(State.NORMAL, before, 1800.0)
        life.started()
        if moves:
            life.advanced(now - 1)
        life.erred(*AWAY, now)
        fails(life, now)
        return life

    first, later, moved = taken_over(1600.0), taken_over(99_000.0), taken_over(1600.0, moves=True)
    assert [life.trouble.since for life in (first, later, moved) if life.trouble] == [1000.0, 1000.0, 1600.0]
    assert first._patience.since == 1000.0
    assert (later._patience.since, moved._patience.since) == (99_000.0, 1600.0)
    first.started()
    fails(first, 2800.0)
    assert first.state is State.FAILED


def test_an_error_that_does_not_pass_fails_at_once() -> None:
    life = Life(State.NORMAL, None, 1800.0)
    life.started()
    assert fails(life, 0.0, MessageTooLarge.code, retryable=False) is Do.NOTHING
    assert life.state is State.FAILED


def test_the_logs_storage_being_away_never_fails_it() -> None:
    life, now = Life(State.NORMAL, None, 30.0), 0.0
    for _ in range(20):
        life.started()
        assert fails(life, now, LogUnavailable.code) is Do.WAIT
        now = life.retry_at or 0.0
    assert now > 900


def test_progress_from_before_an_error_does_not_mend_it() -> None:
    life = Life(State.NORMAL, None, 1800.0)
    life.started()
    life.erred(*AWAY, 100.0)
    assert not life.advanced(99.0)
    assert life.state is State.WARNING
    assert life.advanced(101.0)
    assert life.state is State.NORMAL


def test_a_pause_that_is_taken_back_before_the_batch_ends() -> None:
    life = Life(State.NORMAL, None, 1800.0)
    life.started()
    assert life.paused() is Do.STOP
    assert life.resumed(0.0) is Do.NOTHING, "it still runs"
    assert life.stopped() is Do.START


def test_a_failure_after_a_pause_counts_for_nothing() -> None:
    life = Life(State.NORMAL, None, 1800.0)
    life.started()
    life.paused()
    assert fails(life, 0.0, MessageTooLarge.code, retryable=False) is Do.NOTHING
    assert (life.state, life.trouble) == (State.STOPPED, None)


def test_a_host_that_dies_is_a_warning_until_the_checkpoint_moves() -> None:
    life = Life(State.NORMAL, None, 1800.0)
    life.started()
    life.host_lost("killed", 5.0)
    assert (life.state, life.runs) == (State.WARNING, False)
    assert life.host_up() is Do.START
    assert life.started() == 2
    assert life.advanced(6.0)


@pytest.mark.parametrize("state", [State.STOPPED, State.FAILED, State.FINISHED])
def test_what_does_not_run_is_not_started_by_a_new_host(state: State) -> None:
    assert Life(state, None, 1.0).host_up() is Do.NOTHING


def test_every_transition_of_a_server_is_taken_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: set[tuple[State, Event]] = set()

    def recorded(state: State, event: Event) -> State:
        taken.add((state, event))
        return after(state, event)

    monkeypatch.setattr(life_module, "after", recorded)
    for seed in range(400):
        random, now = Random(seed), 0.0
        life = Life(State.NORMAL, None, 30.0)
        for _ in range(40):
            now += random.choice((0.0, 20.0))
            step = random.randrange(11)
            if life.state is State.REMOVED:
                break
            if life.wanted and not life.runs and random.random() < 0.5:
                life.started()
            if step == 0:
                life.erred(*AWAY, now)
            elif step == 1:
                life.advanced(now + 1)
            elif step in (2, 3) and life.runs:
                fails(life, now)
            elif step == 4 and life.runs:
                fails(life, now, MessageTooLarge.code, retryable=False)
            elif step == 5 and life.runs and random.random() < 0.3:
                life.reached()
            elif step == 6 and life.state is not State.FINISHED:
                life.paused()
            elif step == 7:
                life.resumed(now)
            elif step == 8 and life.state is not State.FINISHED and random.random() < 0.3:
                life.expired(LogNotKept("too long"), now)
            elif step == 9 and random.random() < 0.1:
                life.removed()
            elif step == 10:
                life.host_lost("killed", now)
    assert taken <= set(TRANSITIONS)
    missing = set(TRANSITIONS) - taken
    assert missing == {(State.NORMAL, Event.RESUMED)}, "a normal one that is resumed stays as it is"


def test_trouble_is_as_old_as_its_first_error() -> None:
    """Each attempt has an error of its own. Progress, or a person who resumes it, ends the trouble."""
    life = Life(State.NORMAL, None, 1800.0)
    life.started()
    life.erred("TM:ErrSinkUnavailable", "away", 10.0)
    life.erred("TM:ErrSinkUnavailable", "still away", 20.0)
    assert life.trouble == Trouble("TM:ErrSinkUnavailable", "still away", 20.0, 10.0)
    life.failed("TM:ErrSinkUnavailable", "away", retryable=True, now=30.0, checkpoint=7, trouble_since=10.0, chance=0.5)
    life.started()
    life.host_lost("the host ended", 40.0)
    life.host_up()
    assert life.trouble == Trouble(HOST_LOST, "the host ended", 40.0, 10.0)
    assert life.advanced(41.0)
    assert life.trouble is None
    life.started()
    life.failed("TM:ErrSinkUnavailable", "away", retryable=True, now=90.0, checkpoint=9, trouble_since=70.0, chance=0.5)
    assert life.trouble == Trouble("TM:ErrSinkUnavailable", "away", 90.0, 70.0), "the host met it first then"
    life.resumed(95.0)
    life.started()
    life.erred("TM:ErrSinkUnavailable", "away", 100.0)
    assert life.trouble == Trouble("TM:ErrSinkUnavailable", "away", 100.0, 100.0)
