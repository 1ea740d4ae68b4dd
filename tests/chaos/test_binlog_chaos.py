"""Whatever dies between a TiDB with binlogs and what is behind its Pumps, downstream is the upstream. `make chaos-binlog ROUNDS=20`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.binlog_storm import BinlogStorm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROUNDS = int(os.environ.get("ROUNDS", "0"))
SEED = int(os.environ.get("SEED", "1"))
WORKLOADS = tuple(os.environ.get("WORKLOADS", "mixed bank").split())


def test_a_short_storm_over_pumps_and_a_drainer(tmp_path: Path) -> None:
    BinlogStorm(tmp_path, 4, faults=4, run=False, rest_s=0.5).blow()


@pytest.mark.spark
@pytest.mark.skipif(ROUNDS == 0, reason="make chaos-binlog")
@pytest.mark.parametrize("seed", range(SEED, SEED + max(ROUNDS, 1)))
def test_a_storm_over_binlogs(tmp_path: Path, seed: int) -> None:
    """Everything that may happen, in random order; the workloads in turn, each into files and into Kafka."""
    print(f"SEED={seed}")
    turn, place = divmod(seed, len(WORKLOADS))
    BinlogStorm(tmp_path, seed, faults=12, workload=WORKLOADS[place], kafka=turn % 2 == 1).blow()
