"""When a changefeed's process is tried again, and when it is given up: on made-up ends and a made-up clock."""

from __future__ import annotations

import pytest

from tidemill.changefeed.restart_backoff import How, Patience, Verdict, how_ended
from tidemill.changefeed.states import Event
from tidemill.errors import (
    EXIT_FATAL,
    EXIT_RETRY,
    ConfigError,
    LogUnavailable,
    MessageTooLarge,
    SchemaIncompatible,
    SinkError,
    SinkUnavailable,
    StartTsOutOfLog,
    TidemillError,
    exit_code,
)

ERRED = (Event.ERRED,)
GIVEN_UP = Verdict((Event.ERRED, Event.STUCK), None)


def ended(
    patience: Patience,
    now: float,
    how: How = How.ERRED,
    *,
    checkpoint: int = 1,
    since: float | None = None,
    chance: float = 0.5,
    code: str = SinkUnavailable.code,
) -> Verdict:
    return patience.ended(how, code, now=now, checkpoint=checkpoint, trouble_since=since, chance=chance)


def test_pauses_double_from_ten_seconds_to_half_an_hour() -> None:
    patience = Patience(stuck_s=1e9)
    assert [ended(patience, 0.0).pause_s for _ in range(10)] == [10, 20, 40, 80, 160, 320, 640, 1280, 1800, 1800]
    for _ in range(5000):
        assert ended(patience, 0.0).pause_s == 1800  # no overflow


def test_chance_moves_a_pause_by_a_tenth() -> None:
    assert ended(Patience(), 0.0, chance=0.0).pause_s == 9
    assert ended(Patience(), 0.0, chance=1.0).pause_s == 11


def test_errors_without_progress_for_the_stuck_duration_fail_it() -> None:
    patience = Patience(stuck_s=100)
    assert ended(patience, 1000) == Verdict(ERRED, 10)
    assert ended(patience, 1095) == Verdict(ERRED, 5)  # the last attempt is not after the end
    assert ended(patience, 1100) == GIVEN_UP
    assert ended(Patience(stuck_s=0), 1000) == GIVEN_UP


def test_the_time_counts_from_the_first_error_of_the_process() -> None:
    patience = Patience(stuck_s=100)
    assert ended(patience, 1000, since=930) == Verdict(ERRED, 10)
    assert patience.since == 930
    assert ended(patience, 1030) == GIVEN_UP


def test_progress_and_a_person_give_all_the_time_again() -> None:
    patience = Patience(stuck_s=100)
    ended(patience, 1000)
    ended(patience, 1050)
    assert ended(patience, 1110, checkpoint=2) == Verdict(ERRED, 10)
    assert ended(patience, 1211, checkpoint=2) == GIVEN_UP
    patience.resumed(1300)
    assert ended(patience, 1310, checkpoint=2, since=1000) == Verdict(ERRED, 10)  # the process was in trouble before that
    assert patience.since == 1300


def test_what_trying_again_does_not_mend_fails_at_once() -> None:
    assert ended(Patience(), 0, How.REFUSED) == Verdict((Event.REFUSED,), None)


def test_a_process_that_is_lost_once_is_back_after_a_second_and_a_crash_loop_is_not() -> None:
    patience = Patience(stuck_s=100)
    assert [ended(patience, t, How.LOST).pause_s for t in (0, 5, 20)] == [1, 20, 40]
    assert ended(patience, 30, How.LOST, checkpoint=2).pause_s == 1
    assert ended(patience, 130, How.LOST, checkpoint=2) == GIVEN_UP


def test_a_log_that_is_away_never_fails_the_changefeed() -> None:
    patience = Patience(stuck_s=100)
    pauses = [ended(patience, hour * 3600.0, code=LogUnavailable.code).pause_s for hour in range(24)]
    assert pauses == [10, 20, 40] + [60] * 21


@pytest.mark.parametrize(
    ("error", "how"),
    [
        (SinkUnavailable("away"), How.ERRED),
        (SinkError("a right was taken away"), How.ERRED),
        (MessageTooLarge("17 MiB"), How.REFUSED),
        (SchemaIncompatible("a column is gone"), How.REFUSED),
        (ConfigError("no such key"), How.REFUSED),
        (StartTsOutOfLog("before it"), How.REFUSED),
    ],
)
def test_how_a_told_error_counts(error: TidemillError, how: How) -> None:
    assert how_ended(exit_code(error, supervised=True), error.code) is how


@pytest.mark.parametrize("status", [-9, 1, 2, EXIT_RETRY, EXIT_FATAL])
def test_an_end_without_a_word_is_a_loss(status: int) -> None:
    assert how_ended(status, None) is How.LOST
