"""Kernels read and write nothing out of bounds, whatever the bytes say: each family in a process of its own, between guard pages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.rows.guarded_fuzz import FAMILIES
from tests.support.thorough import FUZZ

ROOT = Path(__file__).parents[2]
ROUNDS = 12 * FUZZ


@pytest.fixture(scope="module")
def ended() -> tuple[dict[str, tuple[int, int]], str]:
    """How each family ended and after how many rounds, and what was said on stderr. The kernels are loaded once for all."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.support.rows.guarded_fuzz", "1", str(ROUNDS)],
        cwd=ROOT, capture_output=True, text=True, timeout=800 + 10 * ROUNDS * len(FAMILIES),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found, rounds = {}, 0
    for line in done.stdout.splitlines():
        family, _, status = line.partition(" ")
        if status:
            found[family], rounds = (int(status), rounds), 0
        else:
            rounds += 1
    return found, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900 + 10 * ROUNDS * len(FAMILIES))
@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_touched_out_of_bounds(ended: tuple[dict[str, tuple[int, int]], str], family: str) -> None:
    found, said = ended
    status, rounds = found[family]
    assert (status, rounds) == (0, ROUNDS), f"{status} in round {rounds}: {said}"
