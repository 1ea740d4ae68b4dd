"""A figure: what a benchmark saw, beside the machine's limit of the same run and the aim. Kept as JSON lines.

`note` appends to the file that BENCH_FIGURES names; without it nothing is kept, and a benchmark only prints.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

PLACE = "BENCH_FIGURES"


class NotFigures(ValueError):
    """A file does not hold figures. The message names the file, the line and what is wrong."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What the machine itself needs for the same bytes, in the unit of the figure and from the same run."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Figure:
    """`stage` is a heading of the page, `name` a row of its table. `most`: less is better, and the aim is the most it may be; otherwise
    more is better. A figure with an `axis` is a point of the curve `name`, at `at`."""

    stage: str
    name: str
    value: float
    unit: str
    limit: Limit | None = None
    aim: float | None = None
    most: bool = True
    axis: str = ""
    at: float = 0.0

    @property
    def key(self) -> tuple[str, str, str, float]:
        """What a figure of another run must share to be the same measurement."""
        return self.stage, self.name, self.unit, self.at

    @property
    def meets(self) -> bool | None:
        """Whether the aim is met; None where there is none."""
        if self.aim is None:
            return None
        return self.value <= self.aim if self.most else self.value >= self.aim

    @property
    def times_limit(self) -> float | None:
        """How many times the limit it takes; a limit of nothing cannot be compared with."""
        return self.value / self.limit.value if self.limit is not None and self.limit.value > 0 else None


def note(figure: Figure) -> None:
    """Keep a figure, if the run keeps figures."""
    if place := os.environ.get(PLACE):
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(figure)) + "\n")


def read(path: Path) -> list[Figure]:
    """Return the figures of a file, in its order. Raises NotFigures, OSError."""
    return [_read(line, f"{path}, line {number}") for number, line in enumerate(_lines(path), 1)]


def _lines(path: Path) -> Iterable[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _read(line: str, where: str) -> Figure:
    try:
        fields = json.loads(line)
        limit = fields.pop("limit")
        return Figure(**fields, limit=Limit(**limit) if limit is not None else None)
    except (ValueError, TypeError, KeyError, AttributeError) as e:
        raise NotFigures(f"{where} does not hold a figure: {e}; `python -m bench --figures FILE` writes such files") from None


MEMORY = Path("/dev/shm")
"""A file system in memory: what a file costs there is the work, without a disk and without pages that were never touched."""


def files_in(folder: Path) -> str:
    """What a figure's name says of the folder of its files."""
    return ", files in memory" if folder.is_relative_to(MEMORY) else ""
