"""Fails a test in which a capture holds its event loop for longer than 100 ms, with the stack."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.capture.held_loops import watched


@pytest.fixture(autouse=True)
def nothing_holds_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield from watched(monkeypatch)
