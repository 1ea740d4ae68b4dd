"""The event loop reads why nothing is written while the ingest thread changes the list."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from tidemill.capture.tikv.sort.sealing import Sealing
from tidemill.capture.tikv.sort.spill import RowSpill


class Written:
    """Something under way. Another thread gets its turn whenever it is read."""

    def __init__(self, others_turn: Callable[[], None]) -> None:
        self._others_turn = others_turn

    @property
    def refusal(self) -> str:
        self._others_turn()
        return ""

    @property
    def bytes(self) -> int:
        self._others_turn()
        return 1


@pytest.fixture
def spill() -> RowSpill:
    spill = RowSpill.__new__(RowSpill)
    spill._writing = deque()

    def turn() -> None:
        spill._writing.popleft() if len(spill._writing) > 1 else spill._writing.append(one)

    one: Any = Written(turn)
    spill._writing.extend([one] * 4)
    return spill


def test_spills_that_come_and_go_while_they_are_looked_at(spill: RowSpill) -> None:
    assert spill.refusal == ""
    assert spill.bytes > 0


def test_seals_that_come_and_go_while_they_are_looked_at() -> None:
    sealing = Sealing.__new__(Sealing)
    under_way: dict[int, Any] = {}
    one = Written(lambda: under_way.update({len(under_way): one}))
    under_way.update({0: one, 1: one})
    sealing._under_way = under_way
    assert sealing.refusal == ""
