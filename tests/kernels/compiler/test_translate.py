"""What kernels compute is what Python computes with 64 bits, and what the compiler does not know it refuses by name and line."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidemill.kernels import entries
from tidemill.kernels.compiler.functions import Part
from tidemill.kernels.compiler.translate import Module
from tidemill.kernels.compiler.values import INT, KernelError
from tidemill.kernels.intrinsics import as_i, as_u, bits_f64, entry, f64_bits, jit, ld64, ldu64, st64

U1, U7, U63 = np.uint64(1), np.uint64(7), np.uint64(63)
LEAST, MOST = -(1 << 63), (1 << 63) - 1
numbers = st.one_of(st.integers(LEAST, MOST), st.integers(-20, 20))


def wrapped(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


@entry(2)
def whole(a, b):
    return a // b


@entry(2)
def rest(a, b):
    return a % b


@entry(1)
def by_constants(a):
    return a // 7 * 1000003 + a % 7 * 1009 + a // -5 * 17 + a % -5 + a // 8 + a % 16


@given(numbers, numbers)
@example(LEAST, 1)
@example(-7, 2)
def test_division_goes_downwards(a: int, b: int) -> None:
    if (a, b) == (LEAST, -1):
        return  # no int64 has the result
    assert whole(a, b) == (a // b if b else 0)
    assert rest(a, b) == (a % b if b else 0)
    assert by_constants(a) == wrapped(a // 7 * 1000003 + a % 7 * 1009 + a // -5 * 17 + a % -5 + a // 8 + a % 16)


@entry(3)
def arithmetic(a, b, c):
    x = a * 31 + b - c
    x ^= b << (c & 63)
    x |= a >> (b & 63)
    x &= ~(c + 5)
    return -x


@given(numbers, numbers, numbers)
def test_signed_arithmetic_wraps(a: int, b: int, c: int) -> None:
    x = wrapped(a * 31 + b - c)
    x ^= wrapped(b << (c & 63))
    x |= a >> (b & 63)
    x &= ~wrapped(c + 5)
    assert arithmetic(a, b, c) == wrapped(-x)


@entry(2)
def unsigned(a, b):
    x, y = as_u(a), as_u(b)
    return as_i((x // (y | U1)) + (x % (y | U1)) * U7 + (x >> U63) + (y << U7)) if x > y else as_i(x - y)


@given(numbers, numbers)
def test_unsigned_arithmetic(a: int, b: int) -> None:
    x, y = a % (1 << 64), b % (1 << 64)
    assert unsigned(a, b) == wrapped(x // (y | 1) + x % (y | 1) * 7 + (x >> 63) + (y << 7) if x > y else x - y)


@entry(3)
def order(a, b, c):
    found = 0
    if a < b <= c:
        found |= 1
    if a == b or (b == c and not a > c):
        found |= 2
    found |= (a != c) << 2
    found += 8 if a >= b else 16
    chosen = min(a, b, c) < max(a, b)
    return found if chosen else -found


@given(numbers, numbers, numbers)
@example(1, 1, 1)
@example(1, 2, 2)
def test_comparisons(a: int, b: int, c: int) -> None:
    found = (a < b <= c) | (a == b or (b == c and not a > c)) << 1 | (a != c) << 2
    found += 8 if a >= b else 16
    assert order(a, b, c) == (found if min(a, b, c) < max(a, b) else -found)


@jit
def divided(a, b):
    """A tuple of different kinds."""
    if b == 0:
        return False, 0
    return a % b == 0, a // b


@entry(2)
def loops(n, stop):
    total = 0
    for i in range(n):
        if i == 3:
            continue
        if i == stop:
            break
        total += i
        i = 1000
        _ = i
    for i in range(10, n, -2):
        total += i * 100
    steps = 0
    while True:
        steps += 1
        even, total = divided(total, 2)
        if not even or steps > 70:
            break
    return total * 1000 + steps


def plain_loops(n: int, stop: int) -> int:
    total = sum(i for i in range(n) if i != 3 and (i < stop or stop == 3))
    total += sum(range(10, n, -2)) * 100
    steps, even = 0, True
    while even and steps <= 70:
        steps += 1
        even, total = total % 2 == 0, total // 2
    return total * 1000 + steps


@pytest.mark.parametrize("n", [0, 1, 4, 9, 12])
@pytest.mark.parametrize("stop", [3, 5, 100])
def test_loops(n: int, stop: int) -> None:
    assert loops(n, stop) == plain_loops(n, stop)


@entry(2)
def doubles(a, out):
    x = bits_f64(ldu64(a))
    y = bits_f64(ldu64(a + 8))
    st64(out, f64_bits(x * y + x / 4.0 - y))
    st64(out + 8, f64_bits(np.float64(np.float32(x))))
    st64(out + 16, x < y)
    st64(out + 24, x != x)
    st64(out + 32, int(y) if -1000.0 < y < 1000.0 else 0)
    return 0


@given(st.floats(width=64), st.floats(width=64))
@example(math.nan, 1.0)
def test_doubles(x: float, y: float) -> None:
    given_, out = np.array([x, y]), np.zeros(5, np.int64)
    doubles(given_.ctypes.data, out.ctypes.data)
    with np.errstate(all="ignore"):
        expected = given_[0] * given_[1] + given_[0] / 4.0 - given_[1]
        single = np.float64(np.float32(given_[0]))
    assert np.array_equal(out[:2].view(np.float64), [expected, single], equal_nan=True)
    assert out[2:].tolist() == [x < y, math.isnan(x), int(y) if -1000 < y < 1000 else 0]


@entry(2)
def guarded(a, n):
    """Reads nothing behind the end: what comes after `and` waits for what is before it."""
    return n > 0 and ld64(a) == 7


def test_what_is_behind_an_and_waits() -> None:
    assert guarded(0, 0) == 0
    assert guarded(np.array([7]).ctypes.data, 1) == 1


def test_integers_of_numpy_are_taken() -> None:
    assert whole(np.int64(7), np.uint64(2)) == 3
    with pytest.raises(TypeError):
        whole(7.0, 2)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        whole(7)


def test_parts_are_not_for_python() -> None:
    with pytest.raises(TypeError, match=r"divided is a part of kernels"):
        divided(1, 2)
    with pytest.raises(TypeError, match="as_u is an operation of kernels"):
        as_u(1)


@entry(1)
def written_numbers(a):
    """What is above 64 bits on the way is as Python has it."""
    return as_i(np.uint64((1 << 64) // 10)) - a if a < (1 << 63) // 10 else -(1 << 63)


def test_written_numbers_have_no_limit() -> None:
    assert written_numbers(5) == (1 << 64) // 10 - 5
    assert written_numbers(MOST) == LEAST


# What is refused


def mixed(a):
    return a + U1


def never_assigned(a):
    while a > 0:
        a -= b_later  # type: ignore[name-defined]  # noqa: F821
    return a


def forgets(a):  # noqa: RET503
    if a > 0:
        return 1


def changes_its_kind(a):
    a = as_u(a)
    st64(a, a)


def lists(a):
    return [a]


def says_keywords(a):
    return divided(a=a, b=1)  # type: ignore[call-arg]


def calls_python(a):
    return abs(a)


def two_of_three(a):
    _one, two = divided(a, 2), 3
    return two


@jit
def itself(a):
    return itself(a)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (mixed, r"mixed, line \d+: int64 and uint64 in one operation"),
        (never_assigned, "b_later is not there"),
        (forgets, "has a way to its end without a result"),
        (changes_its_kind, "int64 and uint64 in one place"),
        (lists, "a kernel has no List"),
        (says_keywords, "without keywords"),
        (calls_python, "abs is not there"),
        (two_of_three, "is a tuple"),
        (itself.function, "itself calls itself"),
    ],
)
def test_what_the_compiler_does_not_know(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        Module().add_entry(Part(function), function.__name__, INT)


def test_the_name_of_the_file_goes_by_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant of another module is in it, and one that no kernel mentions is not."""
    before = entries.file_name(__name__)
    monkeypatch.setitem(globals(), "LEAST", 5)
    assert entries.file_name(__name__) == before
    monkeypatch.setitem(globals(), "U7", np.uint64(8))
    assert entries.file_name(__name__) != before
