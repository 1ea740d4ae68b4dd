"""Table rules: TiDB's table-filter language."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.errors import ConfigError
from tidemill.rules import table_filter as module
from tidemill.rules.table_filter import TableFilter


def accepted(rules: list[str], *names: str, case_sensitive: bool = False) -> list[str]:
    table_filter = TableFilter(rules, case_sensitive=case_sensitive)
    return [name for name in names if table_filter.matches(*name.split(".", 1))]


def test_wildcards() -> None:
    assert accepted(["db[0-9].t?l*"], "db1.tbl", "db1.tl", "dbx.tbl", "db1.tXl_more", "db12.tbl") == ["db1.tbl", "db1.tXl_more"]
    assert accepted(["[!a-c]b.*"], "ab.t", "db.t", "Cb.t") == ["db.t"]
    assert accepted([r"[a\]\-].t"], "a.t", "].t", "-.t", "b.t") == ["a.t", "].t", "-.t"]
    assert accepted(["?.*"], "é.t", "e\u0301.t") == ["é.t"]
    assert accepted(["*.*"], "a.", "a.\n") == ["a.", "a.\n"]


def test_the_last_match_wins_and_nothing_matching_is_out() -> None:
    rules = ["employees.*", "!*.dep*", "*.departments"]
    names = ["irrelevant.table", "employees.employees", "employees.dept_emp", "employees.departments", "else.departments"]
    assert accepted(rules, *names) == ["employees.employees", "employees.departments", "else.departments"]
    assert accepted(["!a.b"], "a.b", "a.c") == []
    assert accepted([], "a.b") == []


def test_quotes_and_escapes() -> None:
    assert accepted(['"a.b".`c``d`', '"q""".t'], 'q".t') == ['q".t']
    assert TableFilter(['"a.b".`c``d`']).matches("a.b", "c`d")
    assert TableFilter([r"a\.b\*.t"]).matches("a.b*", "t")
    assert not TableFilter([r"a\.b\*.t"]).matches("a.bx", "t")
    assert TableFilter(["`*`.t"]).matches("*", "t")
    assert not TableFilter(["`*`.t"]).matches("x", "t")


def test_regular_expressions_match_anywhere_and_are_gos() -> None:
    assert accepted([r"/^db\d{2,}$/./b/"], "db01.abc", "db1.b", "xdb01.b") == ["db01.abc"]
    assert TableFilter([r"/a\/b/.*"]).matches("xa/bx", "t")
    assert TableFilter([r"/^[[:alpha:]]+\z/.*"]).matches("abc", "t")
    assert not TableFilter([r"/^[[:alpha:]]+\z/.*"]).matches("a1", "t")
    assert not TableFilter([r"/^\d$/.*"]).matches("٣", "t"), "Go's \\d is ASCII"
    assert TableFilter([r"/a\\1/.*"]).matches("a\\1", "t")


@pytest.mark.parametrize(
    "rule", [r"/(a)\1/.*", "/(?=a)/.*", "/(?<!a)b/.*", r"/a\Z/.*", r"/\C/.*", "/(/.*", "/(?x)a/.*", "/[[:nope:]]/.*", "/a{1001}/.*"]
)
def test_regular_expressions_that_go_cannot_read_are_refused(rule: str) -> None:
    with pytest.raises(ConfigError, match=r"filter rule .* error parsing regexp: "):
        TableFilter([rule])


def test_no_rule_takes_long() -> None:
    """Each of these takes Python's matcher more than a lifetime."""
    name = "a" * 60
    assert not TableFilter([r"/^(a+)+$/.t"]).matches(name + "!", "t")
    assert not TableFilter(["*a" * 25 + "b.t"]).matches(name, "t")


def test_case() -> None:
    assert accepted(["Db.Tbl", "/^X/.*"], "dB.tBL", "xy.t") == ["dB.tBL", "xy.t"]
    assert accepted(["Db.Tbl", "/^X/.*"], "dB.tBL", "xy.t", "Db.Tbl", "X.t", case_sensitive=True) == ["Db.Tbl", "X.t"]
    assert accepted(["[A-C]x.*"], "bx.t", "dx.t") == ["bx.t"]


def test_comments_and_blank_rules_count_for_nothing() -> None:
    assert accepted(["", "  # *.*", "  a.b  "], "a.b", "c.d") == ["a.b"]


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ("@file.txt", "cannot be imported"),
        ("a", "expected `.`"),
        (".b", "a pattern is missing"),
        ("a.", "a pattern is missing"),
        ("a.b.c", "unexpected text after"),
        ("a b.c", "unexpected character ' '"),
        ("a-b.c", "unexpected character '-'"),
        ("`a`b.c", "as a whole"),
        ("`ab.c", "no end"),
        ("``.c", "empty"),
        ("a[.c", "character class"),
        ("a[z-a].c", "ends before it begins"),
        (r"a\n.c", "cannot be escaped"),
        ("a.c\\", "nothing follows"),
        ("/ab.c", "closing"),
        ("//.c", "closing"),
        ("!", "a pattern is missing"),
        ("a.b # comment", "unexpected character"),
        ("a.b\nc.d", "one line"),
    ],
)
def test_faults_name_the_rule_and_the_place(rule: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(fault)) as caught:
        TableFilter(["*.*", rule])
    assert repr(rule) in str(caught.value)
    assert "column" in str(caught.value)


def test_what_is_remembered_is_right_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED", 3)
    table_filter = TableFilter(["a*.*", "!ab.*"])
    names = ["a", "ab", "b", "abc", "ac", "x"]
    for _ in range(3):
        assert [name for name in names if table_filter.matches(name, "t")] == ["a", "abc", "ac"]
        assert len(table_filter._known) <= 3


def test_schemas() -> None:
    table_filter = TableFilter(["a.*", "b.t", "!a.x", "c.*", "!c.*"])
    assert [s for s in "abcd" if table_filter.matches_schema(s)] == ["a", "b"]


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_a_quoted_name_matches_itself_only(schema: str, table: str) -> None:
    if any(c in schema + table for c in "\r\n"):
        return
    quoted = ".".join("`" + part.replace("`", "``") + "`" for part in (schema, table))
    table_filter = TableFilter([quoted], case_sensitive=True)
    assert table_filter.matches(schema, table)
    assert not table_filter.matches(schema + "x", table)
    assert not table_filter.matches(schema, "x" + table)


@given(st.text(alphabet='ab*?[]!-\\.`"/#@^ é', max_size=12))
def test_any_text_is_a_rule_or_a_clear_refusal(rule: str) -> None:
    with contextlib.suppress(ConfigError):
        TableFilter([rule]).matches("a", "b")


@given(st.lists(st.sampled_from(["a*.*", "!ab.*", "*.t", "!*.t", "ab.t", "!a?.t?"]), max_size=6), st.sampled_from(["a", "ab", "abc", "x"]))
def test_a_list_is_its_last_matching_rule(rules: list[str], schema: str) -> None:
    expected = False
    for rule in rules:
        if TableFilter([rule.lstrip("!")]).matches(schema, "t"):
            expected = not rule.startswith("!")
    assert TableFilter(rules).matches(schema, "t") is expected
