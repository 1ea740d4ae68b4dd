"""The scenario files: as written, with every message cut into single rows, and cut and permuted at random.

REWRITE=1 writes the output into the files; review the difference before you commit it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from random import Random

import pytest

from tests.support.simulation.scenarios import Wire, rewrite, scenarios
from tests.support.simulation.table_scenarios import Tables

FOLDER = Path(__file__).parent / "scenarios"
FILES = ("matching.txt", "regions.txt", "order.txt")
SQL_FILES = ("rows.txt", "ddl.txt", "gc.txt")
CASES = [(file, name) for file in FILES for name in scenarios(FOLDER / file)]
SQL_CASES = [(file, name) for file in SQL_FILES for name in scenarios(FOLDER / file)]


GROUPS = {
    "M": 24, "C": 25, "O": 6, "U": 17, "K": 8, "D": 24, "P": 5, "G": 7, "H": 3, "S": 6, "L": 3, "B": 2, "R": 4, "F": 2, "E": 2,
}  # fmt: skip
WEAKNESSES = {"F": 23, "T": 7, "C": 7}


def rows_of(part: str) -> list[tuple[str, list[str]]]:
    """The rows of the table below a heading of README.md: their first cell, and the places in the second."""
    text = (FOLDER / "README.md").read_text().split(f"## {part}")[1].split("\n## ")[0]
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]
    return [(first, second.split(", ")) for first, second in cells[1:]]


def index() -> dict[str, list[str]]:
    """The scenarios and their places, from README.md."""
    found: dict[str, list[str]] = {}
    for first, places in rows_of("Where each scenario is"):
        for part in first.split(", "):
            low, _, high = part.partition(" to ")
            group, number = low.split("-")
            numbers = range(int(number), int(high.split("-")[1] if high else number) + 1)
            assert not found.keys() & {f"{group}-{n}" for n in numbers}
            found.update({f"{group}-{n}": places for n in numbers})
    return found


def is_there(place: str, name: str = "") -> bool:
    """Whether a test, or a block of a scenario file, exists."""
    path, _, test = place.partition("::")
    if test:
        return f"\ndef {test}(" in (FOLDER.parents[2] / path).read_text()
    headings = [line for line in (FOLDER / path).read_text().splitlines() if line.startswith("# ")]
    return any(re.search(rf"\b{name}[a-z]?\b", line) for line in headings)


def test_all_138_scenarios_are_somewhere() -> None:
    where = index()
    assert set(where) == {f"{group}-{n}" for group, count in GROUPS.items() for n in range(1, count + 1)}
    assert len(where) == 138
    assert [(name, place) for name, places in where.items() for place in places if not is_there(place, name)] == []


def test_every_weakness_has_tests_that_exist() -> None:
    rows, known = rows_of("Weak points"), index()
    assert [first.split()[0] for first, _ in rows] == [f"{who}{n}" for who, count in WEAKNESSES.items() for n in range(1, count + 1)]
    assert [place for _, places in rows for place in places if not (place in known or ("::" in place and is_there(place)))] == []


MORE_SEEDS = pytest.mark.thorough("more seeds of what the first one does")


@pytest.mark.slow
@pytest.mark.parametrize(("file", "name"), CASES, ids=[name for _, name in CASES])
@pytest.mark.parametrize(
    ("cut", "seeds"),
    [
        pytest.param("whole", [0], id="whole"),
        pytest.param("single", [0], id="single"),
        pytest.param("random", [0], id="random"),
        pytest.param("single", [1, 2, 3], id="single-more", marks=MORE_SEEDS),
        pytest.param("random", [1, 2, 3], id="random-more", marks=MORE_SEEDS),
    ],
)
def test_scenario(file: str, name: str, cut: str, seeds: list[int]) -> None:
    if os.environ.get("REWRITE"):
        pytest.skip("the files are being written")
    for seed in seeds:
        wire = Wire(Random(seed), cut)
        for block in scenarios(FOLDER / file)[name]:
            assert wire.run(block) == list(block.expected), f"{file}:{block.line}"


@pytest.mark.slow
@pytest.mark.parametrize(("file", "name"), SQL_CASES, ids=[name for _, name in SQL_CASES])
@pytest.mark.parametrize(
    ("chaos", "seeds"),
    [
        pytest.param(False, [0], id="calm"),
        pytest.param(True, [0], id="chaos"),
        pytest.param(True, [1, 2], id="chaos-more", marks=MORE_SEEDS),
    ],
)
def test_tables(file: str, name: str, chaos: bool, seeds: list[int], tmp_path: Path) -> None:
    """As written; and with cut messages, broken streams, splits, moved leaders and killed captures between the commands."""
    if os.environ.get("REWRITE"):
        pytest.skip("the files are being written")
    for seed in seeds:
        folder = tmp_path / str(seed)
        folder.mkdir()
        tables = Tables(folder, Random(seed), chaos)
        for block in scenarios(FOLDER / file)[name]:
            assert tables.run(block) == list(block.expected), f"{file}:{block.line}"
        tables.close()


@pytest.mark.skipif(not os.environ.get("REWRITE"), reason="only on demand")
@pytest.mark.parametrize("file", [*FILES, *SQL_FILES])
def test_write_the_files_anew(file: str, tmp_path: Path) -> None:
    outputs = {}
    for i, found in enumerate(scenarios(FOLDER / file).values()):
        folder = tmp_path / str(i)
        folder.mkdir()
        runner: Wire | Tables = Wire(Random(0)) if file in FILES else Tables(folder, Random(0))
        for block in found:
            outputs[block.line] = runner.run(block)
    rewrite(FOLDER / file, outputs)
