"""Value expressions: TiDB's grammar, MySQL's rules of comparison, and refusals that say where."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.schema.tables import column, table
from tidemill.errors import ConfigError, MalformedRow
from tidemill.rules.expressions import bind, parse
from tidemill.rules.expressions.functions import FUNCTIONS, UNSTABLE
from tidemill.tidb.schema.codes import ColumnFlag, MySQLType
from tidemill.tidb.schema.model import TableInfo

T = MySQLType
INFO: TableInfo = table(
    [
        column(T.LONGLONG, name="id"),
        column(T.LONG, name="score", Flag=ColumnFlag.UNSIGNED),
        column(T.NEWDECIMAL, name="price", Flen=10, Decimal=2),
        column(T.DOUBLE, name="ratio"),
        column(T.VARCHAR, name="Name"),
        column(T.VARCHAR, name="ci", Collate="utf8mb4_general_ci"),
        column(T.VARCHAR, name="raw", Charset="binary", Collate="binary"),
        column(T.DATE, name="day"),
        column(T.DATETIME, name="at", Decimal=3),
        column(T.DURATION, name="took"),
        column(T.ENUM, name="color", Elems=["red", "green"], Collate="utf8mb4_general_ci"),
        column(T.SET, name="tags", Elems=["a", "b", "c"]),
        column(T.BIT, name="bits"),
        column(T.YEAR, name="y"),
        column(T.VARCHAR, name="nothing"),
        column(T.LONG, name="doubled", generated_expr_string="`score` * 2"),
        column(T.LONG, name="quadrupled", generated_expr_string="`doubled` * 2"),
        column(T.JSON, name="doc"),
    ]
)
ROW: dict[str, Any] = {
    "id": 7, "score": 60, "price": "12.50", "ratio": 0.5, "Name": b"Anna", "ci": "Straße".encode(), "raw": b"a ", "day": "2024-02-29",
    "at": "2024-02-29 10:20:30.500", "took": "25:30:00", "color": 2, "tags": 5, "bits": 6, "y": 2024, "nothing": None, "doc": '{"a": 1}',
}  # fmt: skip


def holds(text: str, **cells: Any) -> bool:
    condition = bind(parse(text), INFO)
    row = ROW | cells
    return condition.holds([row[c.name] for c in condition.columns])


def value(text: str) -> Any:
    condition = bind(parse(text), INFO)
    return condition.evaluate([ROW[c.name] for c in condition.columns])


TRUE = """
id = 7
id=7 and score>=60
id = 7 AND NOT score < 60
`id` = 7 && !(`score` < 60)
t.id = 7 or 1/0
db.t.id = 7
ID = 7
score > 59.9
score in (1, 60, null)
score not in (1, 2)
score between 60 and 61
score not between 61 and 70
-score = -60
id + 1 = 8 and id - 1 = 6 and id * 2 = 14 and id / 2 = 3.5 and id div 2 = 3 and id % 4 = 3 and id mod 4 = 3
id & 3 = 3 and id | 8 = 15 and id ^ 1 = 6 and id << 1 = 14 and id >> 1 = 3
price = 12.5
price > 12 and price < '13'
price * 2 = 25
round(price) = 13
truncate(price, 0) = 12
ratio = 0.5
ratio < 1e0
floor(ratio) = 0 and ceil(ratio) = 1
abs(-id) = 7
name = 'Anna'
Name <> 'anna'
name = 'Anna  '
raw <> 'a'
ci = 'STRASE'
ci = 'strasse' or ci = 'STRAßE'
ci like 'stra%'
name like 'A__a'
name like 'An\\_a' or name like 'A%'
name not like 'a%'
name like 'A|nna' escape '|'
name regexp '^A.+a$'
name not rlike '^a'
ci regexp 'STRA'
concat(name, '!') = 'Anna!'
upper(name) = 'ANNA' and lower(name) = 'anna'
length(ci) = 7 and char_length(ci) = 6
substr(name, 2, 2) = 'nn' and substring(name from -2) = 'na' and left(name, 1) = 'A' and right(name, 1) = 'a'
locate('nn', name) = 2 and instr(name, 'nn') = 2
trim('  x ') = 'x'
replace(name, 'n', 'm') = 'Amma'
find_in_set('b', 'a,b') = 2
hex(255) = 'FF'
nothing is null
nothing is not null or nothing <=> null
ifnull(nothing, 'x') = 'x'
coalesce(nothing, null, 3) = 3
nullif(id, 7) is null
isnull(nothing)
if(score > 50, 1, 0)
case when score > 50 then 1 else 0 end
case id when 6 then 0 when 7 then 1 end
(nothing = 'x') is null
(nothing = 'x' and id = 8) = 0
nothing = 'x' or id = 7
not (nothing = 'x') is true
day = '2024-02-29'
day > '2024-2-1' and day < 20240301
day = date(at)
at > '2024-02-29 10:20:30' and at < '2024-02-29T10:20:31'
at >= timestamp '2024-02-29 10:20:30.5'
year(day) = 2024 and month(day) = 2 and day(day) = 29 and hour(at) = 10 and minute(at) = 20 and second(at) = 30
took > '24:00:00' and hour(took) = 25
y = 2024
color = 'GREEN' and color = 2 and color in ('green', 'blue')
tags = 'a,c' and tags = 5
bits = 6 and bits = b'110'
doubled = 120 and quadrupled = 240
id = '7'
id = '7.0'
'12abc' = 12
0x41 = 'A'
true and not false
id
1 = 1
greatest(1, 5, 3) = 5 and least(2.5, 1) = 1
cast(price as signed) = 13 and cast('5x' as unsigned) = 5 and cast(id as char) = '7' and cast(at as date) = day
binary ci <> 'strase'
1 xor 0
3 > 2 > 0
2 + 3 * 4 = 14 and (2 + 3) * 4 = 20 and -2 * -3 = 6
1 is true and 0 is false and null is unknown and 1 is not null
_utf8mb4'Anna' = name
'An' 'na' = name
doc = '{"a": 1}'
"""


@pytest.mark.parametrize("text", [line for line in TRUE.splitlines() if line and line != "id"])
def test_conditions_that_hold(text: str) -> None:
    assert holds(text)
    assert not holds(f"not ({text})")


FALSE = """
id
price
name
null
nothing = 'x'
nothing
id = 8
not nothing
name = 'anna'
day = 'no date'
1/0
1 % 0
score
ratio
2.0 / 2
"""


@pytest.mark.parametrize("text", FALSE.split("\n")[1:-1])
def test_what_is_not_the_integer_one_leaves_nothing_out(text: str) -> None:
    assert not holds(text)


def test_an_integer_column_alone_counts_when_it_is_one() -> None:
    assert holds("id", id=1)
    assert not holds("id", id=2)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "at character 1: expected a value, found the end"),
        ("id =", "at character 5: expected a value, found the end"),
        ("id = 7)", "at character 7: expected an operator or the end, found ')'"),
        ("id in 7", "expected `(`"),
        ("id between 1", "expected `AND`"),
        ("id is 7", "expected NULL, TRUE, FALSE or UNKNOWN"),
        ("name = 'x", "unclosed quote"),
        ("id = 7 id", "expected an operator or the end, found 'id'"),
        ("now() > at", "NOW() is not a matter of the row alone"),
        ("rand() > 0.5", "RAND() is not a matter of the row alone"),
        ("lengh(name) > 1", "function LENGH() is not supported; did you mean `length`?"),
        ("json_extract(doc, '$.a') = 1", "function JSON_EXTRACT() is not supported"),
        ("substr(name) = 'x'", "SUBSTR() takes 2 to 3 operands, not 1"),
        ("id in (select 1)", "subqueries are not possible"),
        ("exists (select 1)", "subqueries are not possible"),
        ("@a = 1", "variables such as 'a' have no value here"),
        ("cast(id as json)", "expected one of SIGNED"),
        ("date '2024-13-01' = day", "'2024-13-01' is not a DATE"),
        ("case end", "expected WHEN"),
        ("(" * 300 + "1" + ")" * 300, "nested too deeply"),
    ],
)
def test_what_does_not_parse_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(fault)):
        parse(text)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("nam = 'x'", "there is no column 'nam'; did you mean `Name`?"),
        ("if(id, prize, 1)", "there is no column 'prize'; did you mean `price`?"),
        ("name regexp ci", "REGEXP needs its pattern as a string"),
        ("name regexp '('", "error parsing regexp: missing closing ): `(`"),
    ],
)
def test_what_does_not_fit_the_table_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(fault)):
        bind(parse(text), INFO)


def test_a_virtual_column_that_is_not_understood_is_refused() -> None:
    info = table([column(T.LONG), column(T.LONG, generated_expr_string="json_length(`c1`)")])
    with pytest.raises(ConfigError, match=r"column 'c2' is virtual, and how it is computed is not understood: .*JSON_LENGTH"):
        bind(parse("c2 = 1"), info)
    loop = table([column(T.LONG, generated_expr_string="`c2`"), column(T.LONG, generated_expr_string="`c1`")])
    with pytest.raises(ConfigError, match="too many columns"):
        bind(parse("c2 = 1"), loop)


def test_only_named_columns_are_read() -> None:
    condition = bind(parse("quadrupled > 1 and Name = 'x' and id = 1"), INFO)
    assert [c.name for c in condition.columns] == ["id", "score", "Name"]


def test_integers_out_of_range_are_an_error_as_in_tidb() -> None:
    with pytest.raises(MalformedRow, match="out of range"):
        holds("id * 9223372036854775807 * 9 > 1")


def test_exact_comparisons_of_large_numbers() -> None:
    assert holds("id = 9007199254740993", id=9007199254740993)
    assert not holds("id = 9007199254740993", id=9007199254740992)
    assert holds("id = '9007199254740993'", id=9007199254740993)
    assert holds("price = '12.5'")
    assert holds("price <> 12.51")
    assert str(value("1 / 3")) == "0.3333"


def test_functions_are_either_stable_or_refused() -> None:
    assert not UNSTABLE & FUNCTIONS.keys()


def _as_regex(pattern: str) -> str:
    """A LIKE pattern with `\\` as its escape."""
    pieces = []
    characters = iter(pattern)
    for char in characters:
        following = next(characters, char) if char == "\\" else ""
        pieces.append(re.escape(following) if following else {"%": ".*", "_": "."}.get(char, re.escape(char)))
    return "".join(pieces)


@given(st.text(alphabet="abAB%_\\ .", max_size=12), st.text(alphabet="abAB \\.", max_size=12))
def test_like_is_what_a_regular_expression_says(pattern: str, text: str) -> None:
    literal = pattern.replace("\\", "\\\\")
    assert holds(f"name like '{literal}'", Name=text.encode()) == bool(re.fullmatch(_as_regex(pattern), text, re.DOTALL))


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        bind(parse(text), INFO)


# Another database's opinion: of integers and NULL, SQLite and MySQL think alike, where no operator's rank differs

_ATOMS = st.sampled_from(["a", "b", "c", "0", "1", "2", "-3", "null", "7"])


def _longer(shorter: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    two, three = st.tuples(shorter, shorter), st.tuples(shorter, shorter, shorter)
    return st.one_of(
        st.tuples(shorter, st.sampled_from("+-*"), shorter).map(
            lambda t: f"{t[0]} {t[1]} ({t[2]})" if t[2].startswith("not ") else " ".join(t)
        ),
        st.tuples(shorter, st.sampled_from(["and", "or"]), shorter).map(" ".join),
        st.tuples(two, st.sampled_from(["=", "<>", "<", "<=", ">", ">="])).map(lambda t: f"(({t[0][0]}) {t[1]} ({t[0][1]}))"),
        shorter.map(lambda x: f"not {x}"),
        shorter.map(lambda x: f"- ({x})"),
        shorter.map(lambda x: f"(({x}) is null)"),
        shorter.map(lambda x: f"(({x}) is not null)"),
        three.map(lambda t: f"(({t[0]}) in ({t[1]}, {t[2]}))"),
        three.map(lambda t: f"(({t[0]}) not in ({t[1]}, {t[2]}))"),
        three.map(lambda t: f"(({t[0]}) between ({t[1]}) and ({t[2]}))"),
        three.map(lambda t: f"case when {t[0]} then {t[1]} else {t[2]} end"),
        three.map(lambda t: f"case {t[0]} when {t[1]} then {t[2]} end"),
        two.map(lambda t: f"coalesce({t[0]}, {t[1]})"),
        two.map(lambda t: f"nullif({t[0]}, {t[1]})"),
    )


_INTEGERS = table([column(T.LONGLONG, name=name) for name in "abc"])
_NUMBER = st.one_of(st.none(), st.integers(-5, 5))


@settings(max_examples=300, deadline=None)
@given(st.recursive(_ATOMS, _longer, max_leaves=12), _NUMBER, _NUMBER, _NUMBER)
def test_integers_and_null_are_sqlites(text: str, a: int | None, b: int | None, c: int | None) -> None:
    try:
        condition = bind(parse(text), _INTEGERS)
    except ConfigError as error:
        assume("nested too deeply" not in str(error))
        raise
    cells = dict(zip("abc", (a, b, c), strict=True))
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        (expected,) = database.execute(f"SELECT {text} FROM (SELECT ? AS a, ? AS b, ? AS c)", (a, b, c)).fetchone()
    try:
        got = condition.evaluate([cells[column.name] for column in condition.columns])
    except MalformedRow:
        assert isinstance(expected, float), "SQLite goes on with a float where TiDB stops"
        return
    assert got == expected
