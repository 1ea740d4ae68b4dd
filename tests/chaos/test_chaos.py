"""Whatever dies, nothing is lost. ROUNDS (1) and SEED (1) in the environment: `make chaos ROUNDS=20 SEED=$RANDOM`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.storm import FAULTS, Storm
from tidemill.config.sections import PERFORMANCE_MODES

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

ROUNDS = int(os.environ.get("ROUNDS", "0"))
SEED = int(os.environ.get("SEED", "1"))


@pytest.mark.skipif(ROUNDS > 0, reason="the long one runs")
def test_a_few_kills(tmp_path: Path) -> None:
    """Each process once, in one run."""
    Storm(tmp_path, SEED, faults=4, kinds=("driver", "capture", "worker", "supervisor")).blow()


@pytest.mark.skipif(ROUNDS > 0, reason="the long one runs")
@pytest.mark.parametrize(
    "kinds",
    [("worker",), pytest.param(("worker", "driver"), marks=pytest.mark.thorough("the driver's death too, which the test above has"))],
    ids="-".join,
)
def test_kills_of_tasks_that_stay(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    Storm(tmp_path, SEED, faults=len(kinds), kinds=kinds, mode="low-latency").blow()


@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
def test_a_storm(tmp_path: Path, seed: int) -> None:
    """Everything that may happen, in random order; odd seeds into Kafka, and two of four with tasks that stay."""
    print(f"SEED={seed}")
    Storm(tmp_path, seed, faults=len(FAULTS) + 1, kafka=seed % 2 == 1, mode=PERFORMANCE_MODES[seed // 2 % 2]).blow()
