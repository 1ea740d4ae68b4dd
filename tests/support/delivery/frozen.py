"""Drivers that stop before a statement while others run: connections of the sinks of databases, wrapped."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tidemill.sinks.mysql.connection import Connection


class Killed(BaseException):
    """The process is gone."""


@contextmanager
def at(monkeypatch: pytest.MonkeyPatch, pattern: str, act: Callable[[], None], *, behind: bool = False, thread: str = "") -> Iterator[None]:
    """Call `act` before the first statement that matches, or behind it; only in threads whose name begins so."""
    run, rows, left = Connection.run, Connection.rows, [1]

    def wrapped(whole: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Connection, statement: bytes | str, *values: object) -> Any:
            text = statement if isinstance(statement, str) else statement.decode()
            due = bool(left) and re.search(pattern, text) and threading.current_thread().name.startswith(thread)
            if due:
                left.pop()
            if due and not behind:
                act()
            found = whole(self, statement, *values)
            if due and behind:
                act()
            return found

        return call

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "run", wrapped(run))
        patch.setattr(Connection, "rows", wrapped(rows))
        yield
    assert not left, f"no statement matched {pattern}"


def die() -> None:
    """End the process."""
    raise Killed
