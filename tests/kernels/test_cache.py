"""The cache of compiled kernels: compiling is said once, and what is in the cache is not compiled again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOLD = "compiling kernels into"


def imported(cache: Path) -> str:
    """Import a module with a small kernel in a process that has not set up its log; returns what it printed on stderr."""
    command = [sys.executable, "-c", "import tidemill.kernels.decode.split"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "TIDEMILL_KERNEL_CACHE": str(cache)})
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.slow
def test_compiling_is_said_once(tmp_path: Path) -> None:
    """A first start that takes a minute longer is not silent; the next one has nothing to say."""
    first = imported(tmp_path)
    assert first.count(TOLD) == 1
    assert str(tmp_path) in first
    assert TOLD not in imported(tmp_path)
