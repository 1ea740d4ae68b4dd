"""The queue between the event loop and the ingest thread."""

from __future__ import annotations

import threading

import pytest

from tidemill.capture.tikv.feed.inbox import EndOfStream, Inbox


class _Asleep(Exception):
    """The thread that takes would wait now."""


class _Never(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        if self.is_set():
            return True
        raise _Asleep


def waits(inbox: Inbox) -> bool:
    """Whether somebody who takes waits."""
    try:
        inbox.take(1 << 20, 3600, 0)
    except _Asleep:
        return True
    return False


@pytest.fixture
def inbox() -> Inbox:
    made = Inbox()
    made._some = _Never()
    return made


def test_a_call_that_came_just_before_is_not_slept_over(inbox: Inbox) -> None:
    """The one who takes was still at work when it was woken."""
    inbox.wake()
    assert [waits(inbox), waits(inbox)] == [False, True]


def test_messages_come_in_order_and_an_end_by_itself(inbox: Inbox) -> None:
    inbox.put(1, b"a")
    inbox.put(2, b"b")
    inbox.put(1, EndOfStream("down"))
    assert inbox.take(1 << 20, 0, 0) == ([1, 2], [b"a", b"b"])
    assert inbox.take(1 << 20, 0, 0) == ([1], EndOfStream("down"))
    assert waits(inbox)
    assert inbox.bytes == 0


def test_who_fills_it_hears_of_room(inbox: Inbox) -> None:
    inbox.high, inbox.low = 4, 2
    heard: list[int] = []
    assert inbox.put(1, b"123")
    assert not inbox.put(1, b"45")
    inbox.when_room(lambda: heard.append(inbox.bytes))
    assert heard == []
    inbox.take(1, 0, 0)
    assert heard == []
    inbox.take(1, 0, 0)
    assert heard == [0]
