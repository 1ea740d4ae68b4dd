"""Numbers in value expressions: exact DECIMALs, limits of every kind, and errors that are ours where TiDB has no result either."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.schema.tables import column, table
from tidemill.errors import ConfigError, MalformedRow
from tidemill.rules.expressions import bind, parse
from tidemill.tidb.schema.codes import MySQLType as T

INFO = table(
    [
        column(T.LONGLONG, name="i"),
        column(T.DOUBLE, name="d"),
        column(T.NEWDECIMAL, name="n", Flen=65, Decimal=0),
        column(T.NEWDECIMAL, name="m", Flen=65, Decimal=30),
        column(T.VARCHAR, name="s"),
    ]
)
MAX, MIN, UMAX = (1 << 63) - 1, -(1 << 63), (1 << 64) - 1
ROW: dict[str, Any] = {"i": MIN, "d": 1e300, "n": "9" * 65, "m": "9" * 35 + "." + "9" * 30, "s": b"abc"}


def value(text: str, **cells: Any) -> Any:
    condition, row = bind(parse(text), INFO), ROW | cells
    return condition.evaluate([row[c.name] for c in condition.columns])


EXACT = """
n * 1 = n
n + 1 > n
n - 1 < n
m * 1 = m
m + 0 = m
m - 0.000000000000000000000000000001 < m
-n = -99999999999999999999999999999999999999999999999999999999999999999
- -m = m
abs(-m) = m
n % 7 = 4
mod(m, 0.3) = 0.099999999999999999999999999999
floor(m) = 99999999999999999999999999999999999
ceil(m) = 100000000000000000000000000000000000
truncate(n, -3) = 99999999999999999999999999999999999999999999999999999999999999000
truncate(m, 1) = 99999999999999999999999999999999999.9
round(m, 2) = 100000000000000000000000000000000000
round(m) <> m
m div 1000000000000000000 = 99999999999999999
n / 3 = 33333333333333333333333333333333333333333333333333333333333333333
n / 0.0001 = n * 10000
"""


@pytest.mark.parametrize("text", EXACT.strip().splitlines())
@pytest.mark.parametrize("digits", [1, 28])
def test_decimals_are_exact_whatever_the_callers_context(text: str, digits: int) -> None:
    with localcontext(prec=digits):
        assert value(text) == 1


_DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30, places=8)


@settings(max_examples=150, deadline=None)
@given(_DECIMALS, _DECIMALS)
def test_decimals_are_fractions(a: Decimal, b: Decimal) -> None:
    x, y, cells = Fraction(a), Fraction(b), {"m": f"{a:f}", "n": f"{b:f}"}
    assert Fraction(value("m + n", **cells)) == x + y
    assert Fraction(value("m - n", **cells)) == x - y
    assert Fraction(value("m * n", **cells)) == x * y
    assert value("floor(m)", **cells) == math.floor(x)
    assert value("ceil(m)", **cells) == math.ceil(x)
    if y:
        assert Fraction(value("m % n", **cells)) == x - y * math.trunc(x / y)
        assert abs(Fraction(value("m / n", **cells)) - x / y) <= Fraction(1, 2 * 10**12)


LIMITS = [
    ("cast(n as signed)", MAX),
    ("cast(-n as signed)", MIN),
    ("cast(n as unsigned)", UMAX),
    ("cast(-n as unsigned)", 0),
    ("cast(d as signed)", MAX),
    ("cast(-d as signed)", MIN),
    ("cast(d as unsigned)", UMAX),
    ("cast(1e20 as signed)", MAX),
    ("cast(1e19 as unsigned)", 10**19),
    ("cast(-1e0 as unsigned)", UMAX),
    ("cast(i as unsigned)", 1 << 63),
    ("cast('18446744073709551616' as unsigned)", UMAX),
    ("cast('18446744073709551615' as signed)", -1),
    ("cast('-9223372036854775809' as signed)", MIN),
    ("cast('-1' as unsigned)", UMAX),
    ("cast(0.5 as signed)", 1),
    ("cast(2.5e0 as signed)", 2),
    ("d | 1", MAX),
    ("n | 0", MAX),
    ("n & 6", 6),
    ("hex(n)", "7FFFFFFFFFFFFFFF"),
    ("hex(12.5)", "D"),
    ("cast(n as decimal)", 9999999999),
    ("cast(-d as decimal(4, 1))", Decimal("-999.9")),
    ("cast(9.96 as decimal(2, 1))", Decimal("9.9")),
    ("cast('1e99999999999999999999' as decimal)", 9999999999),
    ("cast('-1e99999999999999999999' as decimal(1))", -9),
    ("cast('1e-99999999999999999999' as decimal)", 0),
    ("cast('12.345e1' as decimal(5, 1))", Decimal("123.5")),
    ("cast('0e9999999999' as decimal)", 0),
    ("truncate(i, 1000000000)", MIN),
    ("truncate(i, -1000000000)", 0),
    ("round(n, 1000000000) = n", 1),
    ("truncate(m, -1000000000)", 0),
    ("round(d, -1000000000)", 0),
    ("round(d, 1000000000)", 1e300),
    ("truncate(d, 400)", 1e300),
    ("round(2.5e0)", 2),
    ("round(2.5)", 3),
    ("floor(d)", 1e300),
    ("'1e400' + 0 > 1e308", 1),
    ("99999999999999999999 + 1 = 100000000000000000000", 1),
    ("-18446744073709551615 - 1 = -18446744073709551616", 1),
    ("concat(d) like '1000%' and length(d)", 1),
    ("concat(1e-7)", "0.0000001"),
    ("0xffff = 65535", 1),
    ("0x41 = 'A'", 1),
    ("x'ff' + 1", 256),
    ("0x10 | 1", 17),
    ("b'101' * 2", 10),
    ("b'1000001' = 'A'", 1),
    ("-0x10", -16),
    ("x'010000000000000000' = 18446744073709551615", 1),
    ("hex(0x4142)", "4142"),
    ("s regexp 0x62", 1),
    ("cast(s as char(2))", "ab"),
    ("cast('äöü' as char(2))", "äö"),
    ("cast(s as char(0))", ""),
    ("cast(s as char(99))", "abc"),
    ("cast(12345 as char(2))", "12"),
    ("convert(s, char(1))", "a"),
    ("cast(s as binary(2))", "ab"),
    ("cast(s as binary(5))", "abc\0\0"),
    ("cast(s as binary(99999999999))", None),
]


@pytest.mark.parametrize(("text", "expected"), LIMITS)
def test_limits(text: str, expected: Any) -> None:
    found = value(text)
    assert (found.data.decode() if isinstance(expected, str) else found) == expected


@pytest.mark.parametrize(
    "text", ["n * n", "d * d", "-d * d", "d * 1e10", "d / 1e-300", "n div 3", "d div 3", "i - 1", "n / 0.00000000000000000000000001"]
)
def test_results_that_tidb_has_not_are_errors(text: str) -> None:
    with pytest.raises(MalformedRow, match="out of range"):
        value(text, d=1e300)


@pytest.mark.parametrize("text", ["d = 1e400", "cast(n as decimal(66))", "cast(n as decimal(40, 31))", "cast(n as decimal(2, 3))"])
def test_numbers_and_types_that_do_not_exist_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse(text)


_ATOMS = st.one_of(
    st.sampled_from(
        ["i", "d", "n", "m", "s", "null", "0x00", "'9e999'", "'-1e-999'", "1e308", "5e-324", "0", "0.5", "18446744073709551615"]
    ),
    st.just("'" + "9" * 5000 + "'"),
    st.just("9" * 5000),
    st.integers(-(10**25), 10**25).map(lambda n: f"({n})"),
)
_FORMS = [
    *(f"({{0}} {sign} {{1}})" for sign in ("+", "-", "*", "/", "div", "%", "|", "<<", "<", "=")),
    *(f"{name}({{0}}, {{1}})" for name in ("round", "truncate", "concat", "greatest", "left", "substr")),
    *(f"{name}({{0}})" for name in ("-", "~", "floor", "ceil", "abs", "sign", "hex", "year", "hour")),
    *(
        f"cast({{0}} as {kind})"
        for kind in ("signed", "unsigned", "decimal", "decimal(65, 30)", "double", "datetime", "char(3)", "binary(4)")
    ),
]


@settings(max_examples=400, deadline=None)
@given(
    st.recursive(_ATOMS, lambda s: st.tuples(st.sampled_from(_FORMS), s, s).map(lambda t: t[0].format(*t[1:])), max_leaves=6),
    st.integers(MIN, UMAX),
    st.floats(),
    st.integers(-(10**65) + 1, 10**65 - 1),
    st.binary(max_size=8) | st.from_regex(rb"\A[-+]?[0-9]{0,30}\.?[0-9]{0,40}(e[-+]?[0-9]{1,22})?\Z"),
)
def test_any_numbers_have_a_result_or_an_error_of_ours(text: str, i: int, d: float, n: int, s: bytes) -> None:
    try:
        value(text, i=i, d=d, n=str(n), m=str(Decimal(n).scaleb(-30)), s=s)
    except (MalformedRow, ConfigError):
        return
