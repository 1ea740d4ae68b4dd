"""Go's regular expressions: what they find and what is told of bad ones. Expected values follow Go's description of its syntax."""

from __future__ import annotations

import pickle
import re

import pytest

from tidemill.errors import ConfigError
from tidemill.rules.patterns import GoRegex, go_literal


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"^\d+$", "12", True),
        (r"^\d+$", "١٢", False),  # digits are ASCII's
        (r"é\d", "é٣", False),  # also where the pattern is not
        (r"^\w$", "é", False),
        (r"\bx", "éx", True),  # é is not a word character
        ("a$", "a\n", False),  # the very end, not before a newline
        ("(?m)a$", "a\nb", True),
        (r"a\z", "a", True),
        ("a.b", "a\nb", False),
        ("(?s)a.b", "a\nb", True),
        ("(?i)é", "É", True),
        (r"^\pL+$", "aéж", True),
        (r"^\p{Greek}+$", "λ", True),
        (r"\PL", "λ", False),
        (r"^\Qa+b\E$", "a+b", True),
        (r"\Q\C", r"\C", True),
        (r"^[[:^digit:]]$", "a", True),
        (r"^[[:word:]\-]+$", "a_-", True),
        (r"x{,3}", "x{,3}", True),
        (r"^(?U)a+", "a", True),
        (r"^(?P<n>a)(?:b)$", "ab", True),
        (r"\x{e9}\x41\101", "éAA", True),
        ("[a&&b]", "&", True),
        (r"\/", "/", True),
    ],
)
def test_they_find_what_go_finds(pattern: str, text: str, found: bool) -> None:
    assert GoRegex(pattern).found_in(text) is found


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(a", "missing closing ): `(a`"),
        ("a)", "unexpected ): `a)`"),
        ("[a", "missing closing ]: `[a`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a++", "invalid nested repetition operator: `++`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("[b-a]", "invalid character class range: `b-a`"),
        (r"\1", r"invalid escape sequence: `\1`"),
        (r"\Z", r"invalid escape sequence: `\Z`"),
        (r"a\C", r"invalid escape sequence: `\C`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a\\", "trailing backslash at end of expression"),
        ("(?P<a", "invalid named capture: `(?P<a`"),
        ("[[:nope:]]", "invalid character class range: `[:nope:]`"),
    ],
)
def test_bad_ones_are_refused_in_gos_words(pattern: str, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"error parsing regexp: {words}")):
        GoRegex(pattern)


def test_time_is_linear_in_the_text() -> None:
    assert not GoRegex("(a+)+$").found_in("a" * 100_000 + "b")
    assert not GoRegex("(x+x+)+y", fold=True).found_in("x" * 100_000)


def test_text_that_is_no_unicode_is_searched_all_the_same() -> None:
    assert GoRegex("b").found_in("\ud800b")


def test_case_and_copies() -> None:
    pattern = GoRegex("^drop", fold=True)
    assert pattern.found_in("DROP TABLE t")
    assert not GoRegex("^drop").found_in("DROP TABLE t")
    assert pickle.loads(pickle.dumps(pattern)) == pattern


def test_literals_find_themselves() -> None:
    text = "".join(map(chr, range(1, 0x250))) + "\0漢"
    assert GoRegex(rf"\A{go_literal(text)}\z").found_in(text)
    assert all(not GoRegex(rf"\A{go_literal(char)}\z").found_in("~") for char in ".*^[]$?")
