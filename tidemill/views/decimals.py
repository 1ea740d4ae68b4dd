"""Operations of decimals that the engine does not have as Spark has them, as functions that are registered with it. Pure.

A name says the types of both arguments and of the result: tm_divide_20_2_10_0_33_13(a, b).
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

_CALL = re.compile(r"tm_(try_divide|divide|multiply|add|subtract|remainder)_(\d+)_(\d+)_(\d+)_(\d+)_(\d+)_(\d+)\(")
_CONTEXT = decimal.Context(prec=120, rounding=decimal.ROUND_HALF_UP)
_OPERATIONS: dict[str, Callable[[decimal.Decimal, decimal.Decimal], decimal.Decimal]] = {
    "divide": _CONTEXT.divide,
    "try_divide": _CONTEXT.divide,
    "multiply": _CONTEXT.multiply,
    "add": _CONTEXT.add,
    "subtract": _CONTEXT.subtract,
    "remainder": _CONTEXT.remainder,
}


@dataclass(frozen=True, slots=True)
class DecimalFunction:
    """A function for the engine: its name, DuckDB's types of the arguments and the result, and what it does with Arrow arrays."""

    name: str
    arguments: tuple[str, str]
    result: str
    gives_null: bool  # for two values: the engine takes that for an error otherwise
    run: Callable[[pa.ChunkedArray, pa.ChunkedArray], pa.Array]


def decimal_call(word: str, a: str, da: pa.DataType, b: str, db: pa.DataType, kind: pa.DataType) -> str:
    """Return a call of the engine's own function for an operation of decimals. Its name says all types."""
    types = "_".join(f"{one.precision}_{one.scale}" for one in (da, db, kind))
    return f"tm_{word}_{types}({a}, {b})"


def functions_in(sql: str) -> Iterator[DecimalFunction]:
    """Yield the functions that a query calls."""
    for found in dict.fromkeys(_CALL.findall(sql)):
        word, *numbers = found
        p1, s1, p2, s2, p, s = map(int, numbers)
        name = f"tm_{word}_{'_'.join(numbers)}"
        yield DecimalFunction(
            name,
            (f"DECIMAL({p1},{s1})", f"DECIMAL({p2},{s2})"),
            f"DECIMAL({p},{s})",
            word == "try_divide",
            _made(word, p, s),
        )


def _made(word: str, precision: int, scale: int) -> Callable[[pa.ChunkedArray, pa.ChunkedArray], pa.Array]:
    operation, unit = _OPERATIONS[word], decimal.Decimal(1).scaleb(-scale)
    kind, limit = pa.decimal128(precision, scale), decimal.Decimal(10) ** (precision - scale)
    has_zero = word in ("divide", "try_divide", "remainder")

    def one(a: decimal.Decimal | None, b: decimal.Decimal | None) -> decimal.Decimal | None:
        if a is None or b is None or (has_zero and not b):
            return None
        found = operation(a, b).quantize(unit, context=_CONTEXT)
        if abs(found) >= limit:
            if word == "try_divide":
                return None
            raise OverflowError(f"{word} of {a} and {b} does not fit decimal({precision},{scale})")
        return found

    def run(a: pa.ChunkedArray, b: pa.ChunkedArray) -> pa.Array:
        return pa.array([one(x, y) for x, y in zip(a.to_pylist(), b.to_pylist(), strict=True)], kind)

    return run
