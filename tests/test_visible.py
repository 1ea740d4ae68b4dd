"""What a stranger named or typed neither moves a terminal's cursor, nor begins a line of the log, nor fills it."""

from __future__ import annotations

import ast
import json
import logging
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import sources
from tidemill import logs
from tidemill.visible import STATEMENT, one_line, printable, short_statement


@given(st.text())
def test_only_breaks_and_tabs_are_left_of_what_a_terminal_acts_upon(text: str) -> None:
    shown = printable(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
    assert printable(shown) == shown
    assert not re.search(r"[\r\n\t]", one_line(text))


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_json_stays_json(text: str) -> None:
    assert json.loads(printable(json.dumps({"name": text}, ensure_ascii=False))) == {"name": text}


def test_escapes_are_readable() -> None:
    assert printable("t\x1b[2J\u202e.txt\U000e0041") == r"t\u001b[2J\u202e.txt\udb40\udc41"
    assert one_line("a\n  b\r\nc\td  e \t\n f") == "a b c d  e f"
    assert short_statement("x" * 1000) == "x" * STATEMENT + "…"


@pytest.mark.parametrize("unit", [" ", "\n", " \n", "\u3000a"])
def test_time_is_linear_in_the_text(unit: str) -> None:
    """In quadratic time, a text of a million blanks takes an hour: the test's timeout then ends it."""
    one_line(unit * (1 << 20))


def test_the_log_has_no_line_of_a_stranger(capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup("info")
    logging.getLogger("tidemill.test").info("table %s is new", "a\x1b]0;title\x07\x9b31m")
    logging.getLogger("tidemill.test").info(
        "DDL: %s", short_statement("CREATE TABLE t\n[2026/01/01 00:00:00.000 +00:00] [ERROR] all is lost")
    )
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert r"a\u001b]0;title\u0007\u009b31m is new" in lines[0]


def test_what_is_logged_at_once_has_a_bound(capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup("info")
    logging.getLogger("tidemill.test").info("%s, behind it", "x" * (4 << 20))
    line = capsys.readouterr().err
    assert len(line) < 100_000
    assert line.endswith(", behind it\n")


LOGS = re.compile(r"\b_?log(ger)?\.(debug|info|warning|error|exception)$")
STATEMENTS = re.compile(r"(^|[._])(query|statement|sql|source)$")


def test_statements_are_shortened_before_they_are_logged() -> None:
    """A statement may have megabytes: it is the argument of no call that logs, but by `short_statement`."""
    whole = []
    for path, text in sources.files(r"\b_?log(ger)?\s*\.\s*\w+\(.*(?s:.)*(query|statement|sql|source)\b"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and LOGS.search(ast.unparse(node.func)):
                whole += [f"{path}: {ast.unparse(node)}" for one in node.args[1:] if STATEMENTS.search(ast.unparse(one))]
    assert whole == []
