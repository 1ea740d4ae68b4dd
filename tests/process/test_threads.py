"""Threads that an event loop begins: it does not wait for them."""

from __future__ import annotations

import _thread
import threading

import pytest

from tidemill.process import threads


def test_nobody_waits_until_the_thread_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    go, done, real = threading.Event(), threading.Event(), _thread.start_new_thread

    def late(work: object, arguments: tuple[object, ...]) -> int:
        """A thread that gets its CPU late."""
        return real(lambda: (go.wait(), work(*arguments)), ())  # type: ignore[operator]

    monkeypatch.setattr(_thread, "start_new_thread", late)
    over = threads.begin(done.set)
    assert not done.is_set()
    assert not over.is_set()
    go.set()
    assert done.wait(60)
    assert over.wait(60)
