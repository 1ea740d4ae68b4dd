"""Values of parametrised tests, of which `make test` has the first few and `make test-all` each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest
from _pytest.mark.structures import ParameterSet

Value = TypeVar("Value")
FUZZ = int(os.environ.get("TIDEMILL_FUZZ", "1"))
"""Multiplies the number of random cases. `make test-all` has three times as many as `make test`."""
_WHY = "one more of the same kind"


def few_of(values: Sequence[object], few: int, why: str = _WHY) -> list[ParameterSet]:
    """Parameters: those behind the first few are `thorough`."""
    return [pytest.param(value, marks=[pytest.mark.thorough(why)] * (place >= few)) for place, value in enumerate(values)]


def all_but(values: Iterable[object], more: Iterable[object]) -> list[ParameterSet]:
    """Parameters: those that are in `more` are `thorough`."""
    more = list(more)
    return [pytest.param(value, marks=[pytest.mark.thorough(_WHY)] * (value in more)) for value in values]


def one_in(number: int, values: Sequence[Value]) -> Sequence[Value]:
    """Every so many of the values; each of them in `make test-all`."""
    return values if "TIDEMILL_THOROUGH" in os.environ else values[::number]
