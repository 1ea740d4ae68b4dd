"""The scenario files: as they are written, with every message cut into single rows, and cut and permuted at random.

REWRITE=1 writes what comes out into the files; look at the difference before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from tests.support.scenarios import Wire, rewrite, scenarios

FOLDER = Path(__file__).parent / "scenarios"
FILES = ("matching.txt", "regions.txt", "order.txt")
CASES = [(file, name) for file in FILES for name in scenarios(FOLDER / file)]


@pytest.mark.parametrize(("file", "name"), CASES, ids=[name for _, name in CASES])
@pytest.mark.parametrize("pieces", ["whole", "single", "random"])
def test_scenario(file: str, name: str, pieces: str) -> None:
    if os.environ.get("REWRITE"):
        pytest.skip("the files are being written")
    for seed in range(1 if pieces == "whole" else 4):
        wire = Wire(Random(seed), pieces)
        for block in scenarios(FOLDER / file)[name]:
            assert wire.run(block) == list(block.expected), f"{file}:{block.line}"


@pytest.mark.skipif(not os.environ.get("REWRITE"), reason="only on demand")
@pytest.mark.parametrize("file", FILES)
def test_write_the_files_anew(file: str) -> None:
    outputs = {}
    for found in scenarios(FOLDER / file).values():
        wire = Wire(Random(0))
        for block in found:
            outputs[block.line] = wire.run(block)
    rewrite(FOLDER / file, outputs)
