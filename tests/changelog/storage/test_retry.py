"""Waiting for storage that is away: how long, how often it is logged, and what ends it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tidemill.changelog.storage import retry
from tidemill.changelog.storage.retry import StorageRetry, pause_after
from tidemill.errors import LogCorrupt, LogUnavailable


class Told:
    """The messages, in place of the log."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def __call__(self, text: str, *arguments: Any) -> None:
        self.words.append(text % arguments)


def failing(times: int, kind: type[Exception] = LogUnavailable) -> Callable[[], str]:
    left = [times]

    def work() -> str:
        if left[0]:
            left[0] -= 1
            raise kind(f"away, {left[0]} more")
        return "done"

    return work


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_S", 0.001)


def test_pauses_double_up_to_half_a_minute() -> None:
    assert [pause_after(n) for n in (1, 2, 3, 5, 6, 7, 10_000)] == [1.0, 2.0, 4.0, 16.0, 30.0, 30.0, 30.0]


def test_an_outage_is_told_when_it_begins_once_a_minute_and_when_it_is_over(quick: None) -> None:
    now, told = [0.0], Told()

    def clock() -> float:
        now[0] += 25.0
        return now[0]

    waiting = StorageRetry(clock=clock, tell=told)
    assert waiting.call(failing(7)) == "done"
    assert [word.partition(" away")[0].partition(" back")[0] for word in told.words] == ["storage is"] * 4
    assert "tried again until it is back: away, 6 more" in told.words[0]
    assert "is away since" in told.words[1]
    assert "storage is back" in told.words[-1]
    assert waiting.outage is None


def test_what_is_there_is_never_told_of() -> None:
    told = Told()
    assert StorageRetry(tell=told).call(failing(0)) == "done"
    assert told.words == []


def test_an_outage_is_over_when_the_first_that_waits_gets_through(quick: None) -> None:
    """Other requests may still wait for half a minute; if they fail again, that is another outage."""
    told, go_on = Told(), threading.Event()
    waiting = StorageRetry(tell=told)

    def slow() -> str:
        if not go_on.is_set():
            raise LogUnavailable("slow")
        return "slow"

    thread = threading.Thread(target=lambda: waiting.call(slow))
    thread.start()
    while waiting.outage is None:
        go_on.wait(0.001)
    waiting.call(failing(2))
    assert len([word for word in told.words if "back after" in word]) >= 1
    while waiting.outage is None:
        go_on.wait(0.001)
    assert waiting.outage.as_dict()["message"] == "slow"
    go_on.set()
    thread.join()
    assert waiting.outage is None
    assert len([word for word in told.words if "back after" in word]) == len([word for word in told.words if "tried again until" in word])


def test_an_outage_goes_on_while_one_gives_up_and_another_waits(quick: None) -> None:
    told, go_on = Told(), threading.Event()
    waiting = StorageRetry(tell=told)

    def slow() -> None:
        if not go_on.is_set():
            raise LogUnavailable("slow")

    thread = threading.Thread(target=lambda: waiting.call(slow))
    thread.start()
    while waiting.outage is None:
        go_on.wait(0.001)
    since = waiting.outage.since
    with pytest.raises(LogUnavailable):
        waiting.call(failing(1000), within=0.02)
    assert waiting.outage is not None
    assert waiting.outage.since == since
    go_on.set()
    thread.join()
    assert waiting.outage is None
    assert len([word for word in told.words if "back after" in word]) == 1


def test_other_errors_are_nobodys_to_wait_for() -> None:
    with pytest.raises(LogCorrupt):
        StorageRetry(tell=Told()).call(failing(1, LogCorrupt))


def test_the_end_of_patience_ends_waits_and_lets_nothing_wait_any_more() -> None:
    ended, told = threading.Event(), Told()
    waiting = StorageRetry(ended, tell=told)
    failures: list[LogUnavailable] = []

    def wait() -> None:
        try:
            waiting.call(failing(1000))
        except LogUnavailable as error:
            failures.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while waiting.outage is None:
        ended.wait(0.001)
    waiting.end()
    thread.join()
    assert len(failures) == 1
    assert waiting.outage is None
    with pytest.raises(LogUnavailable):
        waiting.call(failing(1))
    assert waiting.call(failing(0)) == "done"
    assert not [word for word in told.words if "back after" in word], "nobody knows that"


def test_what_was_never_reached_is_waited_for_a_while_only(quick: None) -> None:
    waiting = StorageRetry(tell=Told())
    with pytest.raises(LogUnavailable):
        waiting.call(failing(1000), within=0.02)
    assert waiting.call(failing(3), within=60.0) == "done"


def test_on_an_event_loop(quick: None) -> None:
    waiting = StorageRetry(tell=Told())

    async def main() -> None:
        assert await waiting.in_thread(failing(3)) == "done"
        calls = failing(3)

        async def work() -> str:
            return calls()

        assert await waiting.call_async(work) == "done"
        with pytest.raises(LogUnavailable):
            await waiting.in_thread(failing(1000), 0.02)
        endless = asyncio.ensure_future(waiting.in_thread(failing(1 << 30)))
        while waiting.outage is None:
            await asyncio.sleep(0)
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        assert waiting.outage is None
        waiting.end()
        with pytest.raises(LogUnavailable):
            await waiting.in_thread(failing(1))

    asyncio.run(main())
