"""Checks whether captures of a test held their event loop."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidemill
from tidemill.metrics import stalls
from tidemill.metrics.stalls import Stall

PACKAGE = str(Path(tidemill.__file__).parent)
TESTS = str(Path(__file__).parents[2])
PLAYGROUND = f"{PACKAGE}/playground"


def by_product(stall: Stall) -> bool:
    """Return whether Tidemill held the loop, and not the test or the playground, which share it."""
    own = [file for file in stall.files if file.startswith((PACKAGE, TESTS))]
    return bool(own) and not own[0].startswith((TESTS, PLAYGROUND))


def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For a fixture: raises AssertionError at the end of the test if a capture held its loop for longer than 100 ms."""
    found: list[Stall] = []
    monkeypatch.setattr(stalls, "TICK", 0.01)
    monkeypatch.setattr(stalls, "log_stall", found.append)
    gc.freeze()  # what the tests before have left is not this capture's to look through
    yield
    gc.unfreeze()
    held = [str(stall) for stall in found if by_product(stall)]
    assert not held, "\n".join(held)
