"""Hints of errors, and the test that does what each says in the state in which it is printed. A hint that leads nowhere costs more than
none."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support import sources

ROOT = Path(__file__).parents[2]

HINTS = {
    "Name a folder that this user can make and write, here and on": "server/changefeeds/test_created.py::test_a_folder_that_cannot_be_made",
    "Name a folder that this user can make and write.": "cli/shared/test_folders.py::test_the_flag_is_named",
    "Do the brokers run": "sinks/kafka/test_hints.py::test_a_broker_that_is_away_and_then_runs",
    "The table is not there. Make it as it is upstream": "sinks/mysql/test_hints.py::test_a_table_that_is_missing_is_there_after",
    "For example: tidemill server --pd": "cli/changefeeds/test_server_file.py::test_all_that_is_missing_is_named_at_once",
    "Is `tidemill server` running there? Name its address with": "cli/cdc/test_short_verbs.py::test_the_flag_that_names_a_server",
    "; did you mean `": "rules/test_unmatched.py::test_what_was_meant_matches",
    "Install it with the extra that has it": "test_extras.py::test_the_extras_are_those_of_the_package",
    "include-commit-ts does.": "cli/downstream/test_show.py::test_csv_without_commit_ts",
}
"""The beginning of a hint as it stands in the code, and the beginning of the test's name."""


@cache
def source() -> str:
    """The texts of all files that have the words of a hint."""
    words = "|".join("".join(f"(?=(?s:.)*{re.escape(word)})" for word in hint.split()) for hint in HINTS)
    return "\n".join(
        node.value
        for _, text in sources.files(rf"\A(?:{words})")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


@pytest.mark.parametrize("hint", HINTS)
def test_each_hint_is_printed_somewhere_and_followed_by_a_test(hint: str) -> None:
    assert hint in source()
    place, _, test = HINTS[hint].partition("::")
    text = (ROOT / "tests" / place).read_text(encoding="utf-8")
    assert f"def {test or 'test_'}" in text
