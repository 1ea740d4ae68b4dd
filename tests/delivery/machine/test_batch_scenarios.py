"""The scenario files of the batch machine, and what they have to cover.

REWRITE=1 writes what comes out into the files; look at the difference before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.delivery.batch_scenarios import ERRORS, Scripted
from tests.support.simulation.scenarios import blocks, rewrite
from tidemill.delivery.machine.batch_machine import TRANSITIONS
from tidemill.delivery.machine.failures import REACTIONS, kind_of
from tidemill.delivery.machine.state import Phase

FOLDER = Path(__file__).parent / "scenarios"
FILES = sorted(FOLDER.glob("*.txt"))
ASKED_FOR = {
    *("executor_lost", "job_lost", "sink_down_then_up", "topic_gone", "registry_refuses", "driver_restarted", "fence_lost"),
    *("ddl_at_the_end", "stop_during_a_batch"),
}


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_scenario(file: Path) -> None:
    driver, outputs = Scripted(), {}
    for block in blocks(file):
        outputs[block.line] = driver.run(block)
        if not os.environ.get("REWRITE"):
            assert outputs[block.line] == list(block.expected), f"{file.name}:{block.line}"
    if os.environ.get("REWRITE"):
        rewrite(file, outputs)


def test_the_scenarios_are_there() -> None:
    assert {file.stem for file in FILES} >= ASKED_FOR


def test_every_phase_and_reaction_has_a_row() -> None:
    assert {phase for phase, _ in TRANSITIONS} == set(Phase) - {Phase.OVER}
    assert {kind_of(error) for error in ERRORS.values()} == set(REACTIONS)
