"""Soaks: `make soak SEED=7 ROUNDS=3 SECONDS=120` (or MINUTES=…); a short one with a fixed seed in the default tests."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.soak.soak import Soak

pytestmark = [pytest.mark.slow, pytest.mark.timeout(0)]

SEED, ROUNDS = int(os.environ.get("SEED", "1")), int(os.environ.get("ROUNDS", "0"))
MINUTES, SECONDS = float(os.environ.get("MINUTES", "0")), float(os.environ.get("SECONDS", "60"))
SHORT = (
    29,  # groups, TLS, an old feed
    pytest.param(1, marks=pytest.mark.thorough("a tiny quota and gRPC, in a soak like that of the other seed")),
)
SHORT_S = 6.0


@pytest.mark.skipif(ROUNDS > 0 or MINUTES > 0, reason="a long one runs")
@pytest.mark.parametrize("seed", SHORT)
def test_a_short_soak(tmp_path: Path, seed: int) -> None:
    Soak(tmp_path, seed, SHORT_S).run()


@pytest.mark.skipif(ROUNDS == 0 and MINUTES == 0, reason="only by make soak")
def test_a_soak(tmp_path: Path) -> None:
    """Run one seed after the other, for a number of rounds or until the minutes are over."""
    began, seed = time.monotonic(), SEED
    while seed < SEED + ROUNDS or time.monotonic() < began + 60 * MINUTES:
        folder = tmp_path / str(seed)
        folder.mkdir()
        Soak(folder, seed, SECONDS).run()
        seed += 1
