"""Kernels read and write nothing out of bounds, whatever the bytes say: each family in a process of its own, between guard pages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.rows.guarded_fuzz import FAMILIES

ROOT = Path(__file__).parents[2]
ROUNDS = 40 * int(os.environ.get("TIDEMILL_FUZZ", "1"))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_touched_out_of_bounds(family: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.support.rows.guarded_fuzz", family, "1", str(ROUNDS)],
        cwd=ROOT, capture_output=True, text=True, timeout=500 + 10 * ROUNDS,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.returncode} in round {done.stdout.split()[-1:]}: {done.stderr}"
    assert len(done.stdout.split()) == ROUNDS
