"""An upstream that a benchmark serves from a process of its own, which is not counted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def serving(module: str, *arguments: str) -> Iterator[str]:
    """The address of the PD that `python -m MODULE --serve …` prints as JSON; it serves until its stdin is closed."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, "--serve", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["pd"]
    finally:
        process.stdin.close()
        process.wait()
