"""Whatever dies, the tables downstream are the upstream's. `make chaos-mysql ROUNDS=20 SEED=$RANDOM`; the short one with a database is in
tests/integration/test_run_mysql.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.database_storm import FAULTS, DatabaseStorm

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

ROUNDS = int(os.environ.get("ROUNDS", "0"))
SEED = int(os.environ.get("SEED", "1"))
WORKLOADS = tuple(os.environ.get("WORKLOADS", "mixed bank soak").split())
PARAMETERS = ("", "transaction-atomicity=table", "batch-dml-enable=false")


@pytest.mark.skipif(ROUNDS == 0, reason="make chaos-mysql")
@pytest.mark.parametrize("seed", range(SEED, SEED + max(ROUNDS, 1)))
def test_a_storm_over_a_database(tmp_path: Path, seed: int) -> None:
    """Everything that may happen, in random order; workloads and parameters in turn."""
    print(f"SEED={seed}")
    workload, parameters = WORKLOADS[seed % len(WORKLOADS)], PARAMETERS[seed // len(WORKLOADS) % len(PARAMETERS)]
    DatabaseStorm(tmp_path, seed, faults=len(FAULTS) + 1, workload=workload, parameters=parameters).blow()
